package testkit

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Receiver is a scripted HTTP receiver on loopback with a log of its own. It
// knows nothing of Milena's packages: signatures are verified with the public
// Standard Webhooks library. Safe for concurrent use.
type Receiver struct {
	Log *ReceiverLog

	base       string
	server     *http.Server
	listener   net.Listener
	tls        *tls.Config
	keepBodies bool
	end        context.CancelFunc

	mu    sync.Mutex
	paths map[string]*pathState
	conns map[net.Conn]http.ConnState
	def   Script
}

// pathState is what the receiver knows of one endpoint; guarded by Receiver.mu.
type pathState struct {
	script        Script
	verifiers     []*standardwebhooks.Webhook
	n             int
	running, peak int
}

// ReceiverOption changes how NewReceiver builds a receiver.
type ReceiverOption func(*Receiver)

// Compact keeps only what Compare needs, 40 bytes a request: for tests of
// hundreds of thousands. Log.All is then empty.
func Compact() ReceiverOption { return func(r *Receiver) { r.Log.compact = true } }

// KeepBodies keeps the bodies in the log.
func KeepBodies() ReceiverOption { return func(r *Receiver) { r.keepBodies = true } }

// WithTLS makes the receiver speak TLS (and HTTP/2 where the configuration offers it).
func WithTLS(c *tls.Config) ReceiverOption { return func(r *Receiver) { r.tls = c } }

// WithDefault sets the script of paths that have none, in place of a plain 200.
func WithDefault(s Script) ReceiverOption { return func(r *Receiver) { r.def = s } }

// NewReceiver starts a receiver on a free loopback port; it ends with the test.
func NewReceiver(t testing.TB, opts ...ReceiverOption) *Receiver {
	t.Helper()
	rcv := &Receiver{Log: &ReceiverLog{}, paths: map[string]*pathState{}, conns: map[net.Conn]http.ConnState{}, def: Always(Answer{})}
	for _, o := range opts {
		o(rcv)
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("receiver: %v", err)
	}
	rcv.base = "http://" + ln.Addr().String()
	if rcv.tls != nil {
		ln = tls.NewListener(ln, rcv.tls)
		rcv.base = "https" + rcv.base[len("http"):]
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	rcv.listener, rcv.end = ln, cancel
	rcv.server = &http.Server{
		Handler:           http.HandlerFunc(rcv.serve),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: time.Minute,
		ConnState:         rcv.noteConn,
		ErrorLog:          log.New(io.Discard, "", 0), // misbehaving peers are the point here
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := rcv.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("receiver: %v", err)
		}
	}()
	t.Cleanup(func() {
		rcv.end()
		_ = rcv.server.Close()
		<-served
	})
	return rcv
}

// URL is the address of a path, which begins with a slash.
func (r *Receiver) URL(path string) string { return r.base + path }

// Addr is the receiver's host and port.
func (r *Receiver) Addr() string { return r.listener.Addr().String() }

// Script sets what a path answers from now on.
func (r *Receiver) Script(path string, s Script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.path(path).script = s
}

// Secrets sets the whsec_ secrets of a path: from now on a request must verify
// with one of them, else its log line says why and Log.Invalid counts it. No
// secrets switch the check off.
func (r *Receiver) Secrets(t testing.TB, path string, secrets ...string) {
	t.Helper()
	var vs []*standardwebhooks.Webhook
	for _, s := range secrets {
		v, err := standardwebhooks.NewWebhook(s)
		if err != nil {
			t.Fatalf("receiver: secret of %s: %v", path, err)
		}
		vs = append(vs, v)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.path(path).verifiers = vs
}

// CloseIdle ends the connections that there are, each as soon as it carries no
// request, as a receiver does that is restarted; the next request needs a connection
// of its own. It returns when they are gone.
func (r *Receiver) CloseIdle(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	old := slices.Collect(maps.Keys(r.conns))
	r.mu.Unlock()
	Eventually(t, 30*time.Second, func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		left := 0
		for _, c := range old {
			state, open := r.conns[c]
			if !open {
				continue
			}
			left++
			if state == http.StateIdle || state == http.StateNew {
				_ = c.Close()
			}
		}
		if left > 0 {
			return fmt.Sprintf("%d connections are open", left)
		}
		return ""
	})
}

// noteConn is the server's ConnState.
func (r *Receiver) noteConn(c net.Conn, state http.ConnState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(r.conns, c)
		return
	}
	r.conns[c] = state
}

// Peak is the highest number of concurrent requests that a path has seen. A
// request counts from the arrival of its headers to the first byte of its
// answer; one that its client has given up counts until the close is seen.
func (r *Receiver) Peak(path string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.path(path).peak
}

// Running is the number of requests that a path has open now.
func (r *Receiver) Running(path string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.path(path).running
}

// Count is the number of requests that a path has seen, also those cut off
// before their body was read.
func (r *Receiver) Count(path string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.path(path).n
}

// WaitFor waits until the log holds n requests, and fails the test after timeout
// times Patience.
func (r *Receiver) WaitFor(t testing.TB, n int, timeout time.Duration) {
	t.Helper()
	timeout *= Patience
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-r.Log.reached(n):
	case <-timer.C:
		t.Fatalf("receiver: %d of %d requests after %s", r.Log.Len(), n, timeout)
	}
}

// path finds or makes the state of a path. The caller holds mu.
func (r *Receiver) path(p string) *pathState {
	s := r.paths[p]
	if s == nil {
		s = &pathState{}
		r.paths[p] = s
	}
	return s
}

func (r *Receiver) begin(path string) (st *pathState, n int, script Script, vs []*standardwebhooks.Webhook) {
	r.mu.Lock()
	defer r.mu.Unlock()
	st = r.path(path)
	st.n++
	st.running++
	st.peak = max(st.peak, st.running)
	script = st.script
	if script == nil {
		script = r.def
	}
	return st, st.n, script, st.verifiers
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	st, n, script, verifiers := r.begin(req.URL.Path)
	begun := sync.OnceFunc(func() {
		r.mu.Lock()
		st.running--
		r.mu.Unlock()
	})
	defer begun()
	got := &Received{
		At: time.Now(), Path: req.URL.Path, N: n, Proto: req.Proto,
		MessageID:  req.Header.Get(standardwebhooks.HeaderWebhookID),
		DeliveryID: req.Header.Get("Milena-Delivery-Id"),
		Attempt:    req.Header.Get("Milena-Attempt"),
		Timestamp:  req.Header.Get(standardwebhooks.HeaderWebhookTimestamp),
		Signature:  req.Header.Get(standardwebhooks.HeaderWebhookSignature),
		Header:     req.Header,
	}
	answer := script(n, got)
	if answer.Close == CloseBeforeRead {
		answer.perform(w, req, begun)
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // half a request is none: the client went away
	}
	got.Size, got.Sum = len(body), sha256.Sum256(body)
	got.Invalid = verify(verifiers, body, req.Header)
	if r.keepBodies {
		got.Body = body
	}
	r.Log.add(got)
	answer.perform(w, req, begun)
}

// verify reports nil when one of the secrets signed the request, or when there are none.
func verify(vs []*standardwebhooks.Webhook, body []byte, h http.Header) error {
	var last error
	for _, v := range vs {
		if last = v.Verify(body, h); last == nil {
			return nil
		}
	}
	return last
}
