package testkit

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// cheapAnswer is the whole answer of a CheapReceiver.
var cheapAnswer = []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

// headLimit bounds a request's head, as bufio.Reader's buffer must hold it.
const headLimit = 16 << 10

// CheapReceiver is an HTTP/1.1 keep-alive receiver for benchmarks on raw TCP.
// It finds the end of the head and the content-length, throws the body away and
// answers a constant 200, so that nearly all CPU is left to what is measured.
// It is no HTTP server: chunked bodies close the connection.
type CheapReceiver struct {
	ln      net.Listener
	scheme  string
	inspect func(head []byte)
	total   atomic.Int64 // of connections that have ended
	wg      sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]*atomic.Int64
}

// NewCheapReceiver starts one on a free loopback port; it ends with the test.
// inspect, if not nil, sees each request's head (request line and headers) on
// the connection's goroutine before the answer, and must not keep it.
func NewCheapReceiver(t testing.TB, inspect func(head []byte)) *CheapReceiver {
	t.Helper()
	return newCheapReceiver(t, nil, inspect)
}

// NewCheapTLSReceiver is NewCheapReceiver for https.
func NewCheapTLSReceiver(t testing.TB, config *tls.Config, inspect func(head []byte)) *CheapReceiver {
	t.Helper()
	return newCheapReceiver(t, config, inspect)
}

func newCheapReceiver(t testing.TB, config *tls.Config, inspect func(head []byte)) *CheapReceiver {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("cheap receiver: %v", err)
	}
	r := &CheapReceiver{ln: ln, scheme: "http://", inspect: inspect, conns: map[net.Conn]*atomic.Int64{}}
	if config != nil {
		r.ln, r.scheme = tls.NewListener(ln, config), "https://"
	}
	r.wg.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

// URL is the address of a path, which begins with a slash.
func (r *CheapReceiver) URL(path string) string { return r.scheme + r.ln.Addr().String() + path }

// Addr is the receiver's host and port.
func (r *CheapReceiver) Addr() string { return r.ln.Addr().String() }

// Count is the number of requests answered so far. Each connection counts for
// itself, so that counting costs no shared cache line.
func (r *CheapReceiver) Count() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.total.Load()
	for _, c := range r.conns {
		n += c.Load()
	}
	return n
}

func (r *CheapReceiver) accept() {
	for {
		c, err := r.ln.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		if r.closed {
			_ = c.Close()
		} else {
			count := new(atomic.Int64)
			r.conns[c] = count
			r.wg.Go(func() { r.serve(c, count) })
		}
		r.mu.Unlock()
	}
}

func (r *CheapReceiver) serve(c net.Conn, count *atomic.Int64) {
	defer func() {
		_ = c.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.conns, c)
		r.total.Add(count.Load())
	}()
	br := bufio.NewReaderSize(c, headLimit)
	for {
		head, err := readHead(br)
		if err != nil {
			return
		}
		if r.inspect != nil {
			r.inspect(head)
		}
		n, ok := contentLength(head)
		if _, err := br.Discard(len(head)); err != nil || !ok {
			return
		}
		if _, err := br.Discard(n); err != nil {
			return
		}
		count.Add(1)
		if _, err := c.Write(cheapAnswer); err != nil {
			return
		}
	}
}

func (r *CheapReceiver) close() {
	r.mu.Lock()
	r.closed = true
	_ = r.ln.Close()
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

var (
	endOfHead = []byte("\r\n\r\n")

	errHeadTooLong = errors.New("head too long")
)

// readHead returns the head of the next request, still in the reader's buffer.
func readHead(br *bufio.Reader) ([]byte, error) {
	if _, err := br.Peek(1); err != nil {
		return nil, err
	}
	for {
		have, _ := br.Peek(br.Buffered())
		if i := bytes.Index(have, endOfHead); i >= 0 {
			return have[:i+len(endOfHead)], nil
		}
		if len(have) == headLimit {
			return nil, errHeadTooLong
		}
		if _, err := br.Peek(len(have) + 1); err != nil {
			if errors.Is(err, bufio.ErrBufferFull) {
				err = errHeadTooLong
			}
			return nil, err
		}
	}
}

// contentLength finds the length of the body; false when it makes no sense or
// the body is chunked.
func contentLength(head []byte) (int, bool) {
	for at := 0; ; {
		i := bytes.IndexByte(head[at:], '\n')
		if i < 0 {
			return 0, true // no body
		}
		at += i + 1
		rest := head[at:]
		const key = "content-length:"
		if len(rest) < len(key) || rest[0]|0x20 != 'c' && rest[0]|0x20 != 't' {
			continue
		}
		if len(rest) > 18 && bytes.EqualFold(rest[:18], []byte("transfer-encoding:")) {
			return 0, false
		}
		if !bytes.EqualFold(rest[:len(key)], []byte(key)) {
			continue
		}
		return parseLength(rest[len(key):])
	}
}

func parseLength(b []byte) (int, bool) {
	b = bytes.TrimLeft(b, " \t")
	n, digits := 0, 0
	for digits < len(b) && b[digits] >= '0' && b[digits] <= '9' && digits < 10 {
		n = n*10 + int(b[digits]-'0')
		digits++
	}
	return n, digits > 0 && digits < 10
}
