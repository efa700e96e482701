package testkit

import (
	"net"
	"net/http"
	"time"
)

// Answer is what a scripted receiver does with one request. The zero value is
// a plain 200 with an empty body. Fields combine in the order in which they
// stand here: hang, wait, then close, reset, raw bytes, stream or answer.
type Answer struct {
	// Hang holds the request until the channel is closed. A client that goes
	// away or the end of the receiver end it too.
	Hang <-chan struct{}
	// Delay waits before the answer.
	Delay time.Duration
	// Close ends the connection in place of an answer.
	Close Close
	// Raw is written as it is in place of an HTTP answer; then the connection
	// is closed.
	Raw []byte
	// Stream writes the answer itself, such as a body that never ends. It must
	// return when done is closed.
	Stream func(w http.ResponseWriter, done <-chan struct{})
	// Status is the answer's status, 200 when it is 0.
	Status int
	Header http.Header
	Body   []byte
}

// Close says how a connection ends in place of an answer.
type Close int

// The ways to end a connection.
const (
	CloseNot        Close = iota
	CloseBeforeRead       // as soon as the request's headers are there; the body is not read, nothing of it is logged
	CloseAfterRead        // an orderly close (FIN) after the whole request was read
	CloseReset            // a reset (RST) after the whole request was read
)

// Script answers the n-th request (from 1) of a path. It is asked when the
// headers are there, before the body is read, and may be called concurrently.
type Script func(n int, r *Received) Answer

// Always is the script that gives one answer to every request.
func Always(a Answer) Script { return func(int, *Received) Answer { return a } }

// Sequence answers one request after the other; the last answer stays.
func Sequence(answers ...Answer) Script {
	return func(n int, _ *Received) Answer { return answers[min(n, len(answers))-1] }
}

// Status is the script that answers every request with that status.
func Status(code int) Script { return Always(Answer{Status: code}) }

// perform carries out an answer. begun is called right before the first byte of
// an answer can leave, so that a client's next request never finds this one
// still counted.
func (a *Answer) perform(w http.ResponseWriter, r *http.Request, begun func()) {
	defer begun()
	if a.Hang != nil && !waitFor(a.Hang, r) {
		panic(http.ErrAbortHandler) // to return would be an answer: 200
	}
	if a.Delay > 0 {
		timer := time.NewTimer(a.Delay)
		defer timer.Stop()
		if !waitFor(timer.C, r) {
			panic(http.ErrAbortHandler)
		}
	}
	begun()
	switch {
	case a.Close != CloseNot:
		hijackAndClose(w, a.Close == CloseReset, nil)
	case a.Raw != nil:
		hijackAndClose(w, false, a.Raw)
	case a.Stream != nil:
		a.Stream(w, r.Context().Done())
	default:
		for k, vs := range a.Header {
			w.Header()[k] = vs
		}
		status := a.Status
		if status == 0 {
			status = http.StatusOK
		}
		w.WriteHeader(status)
		_, _ = w.Write(a.Body) // the client may be gone; that is its business
	}
}

// waitFor waits for ch and reports false when the client went or the receiver
// ended first: the server's base context is the parent of every request's.
func waitFor[T any](ch <-chan T, r *http.Request) bool {
	select {
	case <-ch:
		return true
	case <-r.Context().Done():
		return false
	}
}

// hijackAndClose ends the connection under the HTTP server's hands.
func hijackAndClose(w http.ResponseWriter, reset bool, raw []byte) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2: a stream reset is the nearest thing
	}
	if len(raw) > 0 {
		_, _ = conn.Write(raw)
	}
	if reset {
		resetConn(conn)
		return
	}
	_ = conn.Close()
}

// resetConn closes with a RST in place of a FIN.
func resetConn(c net.Conn) {
	type netConner interface{ NetConn() net.Conn }
	raw := c
	if t, ok := c.(netConner); ok { // a TLS connection
		raw = t.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = raw.Close()
}
