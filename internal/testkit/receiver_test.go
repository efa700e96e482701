package testkit_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/milena-project/milena/internal/testkit"
)

const (
	secret      = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	otherSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

func client(t *testing.T, tc *tls.Config) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: tc, MaxIdleConnsPerHost: 64}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

func signed(t *testing.T, url, id, sec string, body []byte) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	wh, err := standardwebhooks.NewWebhook(sec)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	sig, err := wh.Sign(id, now, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("webhook-id", id)
	req.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("webhook-signature", sig)
	req.Header.Set("milena-delivery-id", "t-00000000-0-1.e1")
	req.Header.Set("milena-attempt", "3")
	return req
}

func do(t *testing.T, c *http.Client, req *http.Request) (int, string, error) {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestReceiverLogsWhatArrivedAndVerifiesIt(t *testing.T) {
	rcv := testkit.NewReceiver(t, testkit.KeepBodies())
	rcv.Secrets(t, "/e1", otherSecret, secret)
	c := client(t, nil)
	if code, _, err := do(t, c, signed(t, rcv.URL("/e1"), "msg_1", secret, []byte("hello"))); err != nil || code != 200 {
		t.Fatalf("got %d, %v", code, err)
	}
	bad := signed(t, rcv.URL("/e1"), "msg_2", secret, []byte("hello"))
	bad.Header.Set("webhook-id", "msg_3")
	if _, _, err := do(t, c, bad); err != nil {
		t.Fatal(err)
	}
	rcv.WaitFor(t, 2, time.Second)
	all := rcv.Log.All("/e1")
	r := all[0]
	if r.MessageID != "msg_1" || r.Attempt != "3" || r.DeliveryID != "t-00000000-0-1.e1" || r.N != 1 ||
		r.Sum != sha256.Sum256([]byte("hello")) || string(r.Body) != "hello" || r.Size != 5 || r.Invalid != nil {
		t.Errorf("logged %+v", r)
	}
	if all[1].Invalid == nil || rcv.Log.Invalid() != 1 {
		t.Errorf("a wrong signature passed: %+v", all[1])
	}
	if len(rcv.Log.All("/other")) != 0 || rcv.Count("/e1") != 2 {
		t.Errorf("paths are mixed up")
	}
}

func TestReceiverFollowsItsScript(t *testing.T) {
	rcv := testkit.NewReceiver(t)
	release := make(chan struct{})
	rcv.Script("/s", testkit.Sequence(
		testkit.Answer{Status: 503, Header: http.Header{"Retry-After": {"7"}}, Body: []byte("later")},
		testkit.Answer{Raw: []byte("HTTP/1.1 abc\r\n\r\n")},
		testkit.Answer{Close: testkit.CloseReset},
		testkit.Answer{Close: testkit.CloseAfterRead},
		testkit.Answer{Close: testkit.CloseBeforeRead},
		testkit.Answer{Hang: release, Status: 204},
	))
	c := client(t, nil)
	send := func() (int, string, error) {
		return do(t, c, signed(t, rcv.URL("/s"), "msg_1", secret, []byte("x")))
	}
	if code, body, err := send(); err != nil || code != 503 || body != "later" {
		t.Errorf("first: %d %q %v", code, body, err)
	}
	if _, _, err := send(); err == nil || !strings.Contains(err.Error(), "malformed HTTP") {
		t.Errorf("raw: %v", err)
	}
	if _, _, err := send(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset: %v", err)
	}
	if _, _, err := send(); !errors.Is(err, io.EOF) {
		t.Errorf("close after read: %v", err)
	}
	logged := rcv.Log.Len()
	if _, _, err := send(); err == nil {
		t.Errorf("close before read: no error")
	}
	if rcv.Log.Len() != logged {
		t.Errorf("a request that was not read is in the log")
	}
	done := make(chan int, 1)
	go func() {
		code, _, _ := send()
		done <- code
	}()
	rcv.WaitFor(t, logged+1, 5*time.Second)
	if rcv.Running("/s") != 1 {
		t.Errorf("running %d, want 1", rcv.Running("/s"))
	}
	close(release)
	if code := <-done; code != 204 {
		t.Errorf("released: %d", code)
	}
}

func TestReceiverCountsConcurrentRequestsOfEachPath(t *testing.T) {
	rcv := testkit.NewReceiver(t)
	release := make(chan struct{})
	rcv.Script("/busy", testkit.Always(testkit.Answer{Hang: release}))
	c := client(t, nil)
	var wg sync.WaitGroup
	for range 7 {
		wg.Go(func() { _, _, _ = do(t, c, signed(t, rcv.URL("/busy"), "msg_1", secret, nil)) })
	}
	rcv.WaitFor(t, 7, 5*time.Second)
	close(release)
	wg.Wait()
	for range 5 { // one after the other on kept-alive connections is never two at a time
		_, _, _ = do(t, c, signed(t, rcv.URL("/quiet"), "msg_1", secret, nil))
	}
	if rcv.Peak("/busy") != 7 || rcv.Peak("/quiet") != 1 {
		t.Errorf("peaks %d and %d, want 7 and 1", rcv.Peak("/busy"), rcv.Peak("/quiet"))
	}
}

func TestReceiverThatHangsEndsWithItsTest(t *testing.T) {
	gone := make(chan error, 1)
	t.Run("inner", func(t *testing.T) {
		rcv := testkit.NewReceiver(t, testkit.WithDefault(testkit.Always(testkit.Answer{Hang: make(chan struct{})})))
		c, req := client(t, nil), signed(t, rcv.URL("/x"), "msg_1", secret, nil)
		req = req.WithContext(t.Context())
		go func() {
			_, _, err := do(t, c, req)
			gone <- err
		}()
		rcv.WaitFor(t, 1, 5*time.Second)
	})
	if err := <-gone; err == nil {
		t.Error("the hanging request was answered")
	}
}

func TestReceiverSpeaksTLSWithATestsOwnAuthority(t *testing.T) {
	ca := testkit.NewAuthority(t)
	good := ca.Issue(t, testkit.CertSpec{})
	expired := ca.Issue(t, testkit.CertSpec{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
	for _, tc := range []struct {
		name string
		cert testkit.Certificate
		ok   bool
	}{{"good", good, true}, {"expired", expired, false}} {
		t.Run(tc.name, func(t *testing.T) {
			rcv := testkit.NewReceiver(t, testkit.WithTLS(&tls.Config{Certificates: []tls.Certificate{tc.cert.TLS}}))
			_, _, err := do(t, client(t, &tls.Config{RootCAs: ca.Pool()}), signed(t, rcv.URL("/x"), "msg_1", secret, nil))
			if (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRawReceiverLeavesTheConnectionToItsScript(t *testing.T) {
	rcv := testkit.NewRawReceiver(t, nil, func(c *testkit.RawConn) {
		for {
			_, body, err := c.ReadRequest()
			if err != nil {
				return
			}
			if string(body) == "reset" {
				c.Reset()
				return
			}
			if c.Say("HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok") != nil {
				return
			}
		}
	})
	c := client(t, nil)
	if code, body, err := do(t, c, signed(t, rcv.URL("/r"), "msg_1", secret, []byte("x"))); code != 202 || body != "ok" {
		t.Fatalf("%d %q %v", code, body, err)
	}
	if _, _, err := do(t, c, signed(t, rcv.URL("/r"), "msg_1", secret, []byte("reset"))); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset: %v", err)
	}
	if rcv.Requests() != 2 || rcv.Conns() != 1 {
		t.Errorf("%d requests on %d connections", rcv.Requests(), rcv.Conns())
	}
}
