package bench

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
)

const (
	endpoints   = 100
	inFlight    = 256
	payloadSize = 1024
)

// baseline is what net/http does with the same signer, receiver and payload, without
// Kafka, lanes or a delivery log.
func baseline(tb testing.TB, n int) speed {
	tb.Helper()
	receiver := testkit.NewCheapReceiver(tb, nil)
	secret, err := signer.GenerateSecret(32)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := signer.New(schemas.Signing{}, []signer.Key{{Secret: secret}})
	if err != nil {
		tb.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: inFlight, DisableCompression: true}
	defer transport.CloseIdleConnections()
	body := bytes.Repeat([]byte("x"), payloadSize)
	urls := make([]string, endpoints)
	for i := range urls {
		urls[i] = receiver.URL("/ep" + strconv.Itoa(i))
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	began, cpu := time.Now(), cpuTime()
	for range inFlight {
		wg.Go(func() {
			for {
				i := int(next.Add(1))
				if i > n {
					return
				}
				req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, urls[i%endpoints], bytes.NewReader(body))
				if err != nil {
					tb.Error(err)
					return
				}
				id := schemas.MessageID("/bench", strconv.Itoa(i))
				if err := s.Sign(req.Header, id, time.Now(), body); err != nil {
					tb.Error(err)
					return
				}
				resp, err := transport.RoundTrip(req)
				if err != nil {
					tb.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	wg.Wait()
	return speed{rate: float64(n) / time.Since(began).Seconds(), cpu: (cpuTime() - cpu) / time.Duration(n)}
}
