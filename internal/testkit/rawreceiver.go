package testkit

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// RawReceiver accepts TCP or TLS connections on loopback and leaves all that
// is said on them to a script: for what an HTTP server cannot be made to do.
// Safe for concurrent use.
type RawReceiver struct {
	ln       net.Listener
	scheme   string
	conns    atomic.Int64
	requests atomic.Int64
	done     chan struct{}
	wg       sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
}

// RawConn is one connection of a RawReceiver.
type RawConn struct {
	net.Conn
	r *bufio.Reader
	// N is the how many-th connection this is, from 1.
	N int
	// Done is closed when the receiver ends: what waits must wait for it too.
	Done <-chan struct{}

	requests *atomic.Int64
}

// NewRawReceiver starts one on a free loopback port; it ends with the test.
// script runs once a connection, which is closed when it returns. A nil config
// means plain TCP; a failed handshake shows as an error of the first read.
func NewRawReceiver(t testing.TB, config *tls.Config, script func(c *RawConn)) *RawReceiver {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("raw receiver: %v", err)
	}
	r := &RawReceiver{ln: ln, scheme: "http", done: make(chan struct{}), open: map[net.Conn]struct{}{}}
	if config != nil {
		r.ln, r.scheme = tls.NewListener(ln, config), "https"
	}
	r.wg.Go(func() { r.accept(script) })
	t.Cleanup(r.close)
	return r
}

// URL is the address of a path, which begins with a slash.
func (r *RawReceiver) URL(path string) string { return r.scheme + "://" + r.ln.Addr().String() + path }

// Addr is the receiver's host and port.
func (r *RawReceiver) Addr() string { return r.ln.Addr().String() }

// Conns is the number of connections accepted so far.
func (r *RawReceiver) Conns() int { return int(r.conns.Load()) }

// Open is the number of connections whose script has not ended.
func (r *RawReceiver) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

// Requests is the number of requests that ReadRequest has read to the end.
func (r *RawReceiver) Requests() int { return int(r.requests.Load()) }

func (r *RawReceiver) accept(script func(*RawConn)) {
	for {
		c, err := r.ln.Accept()
		if err != nil {
			return
		}
		n := int(r.conns.Add(1))
		r.mu.Lock()
		if r.closed {
			_ = c.Close()
			r.mu.Unlock()
			continue
		}
		r.open[c] = struct{}{}
		r.wg.Go(func() {
			defer r.drop(c)
			script(&RawConn{Conn: c, r: bufio.NewReader(c), N: n, Done: r.done, requests: &r.requests})
		})
		r.mu.Unlock()
	}
}

func (r *RawReceiver) drop(c net.Conn) {
	_ = c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
}

func (r *RawReceiver) close() {
	r.mu.Lock()
	r.closed = true
	close(r.done)
	_ = r.ln.Close()
	for c := range r.open {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// ReadRequest reads one whole request.
func (c *RawConn) ReadRequest() (*http.Request, []byte, error) {
	req, err := http.ReadRequest(c.r)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(req.Body)
	if err = errors.Join(err, req.Body.Close()); err != nil {
		return nil, nil, err
	}
	c.requests.Add(1)
	return req, body, nil
}

// Read reads what ReadRequest has not taken.
func (c *RawConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// Say writes s; an error means that the client is gone.
func (c *RawConn) Say(s string) error {
	_, err := io.WriteString(c.Conn, s)
	return err
}

// Reset closes the connection with a RST.
func (c *RawConn) Reset() { resetConn(c.Conn) }

// AwaitClose waits until the client or the receiver ends the connection.
func (c *RawConn) AwaitClose() { _, _ = io.Copy(io.Discard, c.r) }
