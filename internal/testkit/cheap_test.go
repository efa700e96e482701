package testkit_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
)

func TestCheapReceiverAnswersEveryRequestOnce(t *testing.T) {
	var heads atomic.Int64
	rcv := testkit.NewCheapReceiver(t, func(head []byte) {
		if bytes.HasPrefix(head, []byte("POST /e")) && bytes.HasSuffix(head, []byte("\r\n\r\n")) {
			heads.Add(1)
		}
	})
	c := client(t, nil)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 100 {
				code, body, err := do(t, c, signed(t, rcv.URL(fmt.Sprintf("/e%d", w)), "msg_1", secret, bytes.Repeat([]byte("x"), i*400)))
				if err != nil || code != http.StatusOK || body != "" {
					t.Errorf("%d %q %v", code, body, err)
				}
			}
		})
	}
	wg.Wait()
	if rcv.Count() != 800 || heads.Load() != 800 {
		t.Errorf("counted %d, inspected %d", rcv.Count(), heads.Load())
	}
}

func TestCheapReceiverReadsPipelinedAndTornRequests(t *testing.T) {
	rcv := testkit.NewCheapReceiver(t, nil)
	conn, err := net.Dial("tcp", rcv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	all := "POST /a HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nHost: x\r\n\r\n" +
		"POST /c HTTP/1.1\r\nTraceparent: 1\r\nContent-Length:3\r\n\r\nabc"
	go func() {
		for i := range len(all) {
			if _, err := io.WriteString(conn, all[i:i+1]); err != nil {
				return
			}
		}
	}()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	br := bufio.NewReader(conn)
	for i := range 3 {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("answer %d: %v", i, err)
		}
		_ = resp.Body.Close()
	}
	if rcv.Count() != 3 {
		t.Errorf("counted %d", rcv.Count())
	}
}

func BenchmarkCheapReceiver(b *testing.B) {
	rcv := testkit.NewCheapReceiver(b, nil)
	request := []byte("POST /e1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1024\r\n\r\n" + string(make([]byte, 1024)))
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", rcv.Addr())
		if err != nil {
			b.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		buf := make([]byte, 256)
		for pb.Next() {
			if _, err := conn.Write(request); err != nil {
				b.Error(err)
				return
			}
			if _, err := conn.Read(buf); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(rcv.Count())/b.Elapsed().Seconds(), "req/s")
}
