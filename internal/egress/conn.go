package egress

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// conn keeps the number of open connections true, and looks before it writes a
// request on a kept connection.
//
// Without that look an attempt is lost now and then: the receiver closes the idle
// connection; its FIN is in the kernel; net/http's reading goroutine has not run
// yet; a POST is written into the closed connection and answered by a reset, and
// whether it was processed is not known any more. A Write that fails with nothing
// written is instead repeated by net/http on another connection.
type conn struct {
	net.Conn
	open   *atomic.Int64
	closed sync.Once

	peek     func() (n int, err error) // nil: this connection cannot be looked into
	private  bool                      // carries TLS: see Write
	lookAway atomic.Bool               // HTTP/2 or a handshake: no request begins at a write
	answered atomic.Bool               // something was read since the last write
	wrote    atomic.Bool
	written  atomic.Int64 // bytes; see flight
}

func newConn(c net.Conn, open *atomic.Int64, private bool) *conn {
	open.Add(1)
	out := &conn{Conn: c, open: open, private: private}
	out.lookAway.Store(private)
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			out.peek = peeker(raw)
		}
	}
	return out
}

// handshaken ends the time in which a write is part of the TLS handshake.
func (c *conn) handshaken(protocol string) {
	c.wrote.Store(false)
	c.answered.Store(false)
	c.lookAway.Store(protocol == "h2")
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.answered.Store(true)
	}
	return n, err
}

// Write looks before the first write after an answer, except on a fresh connection.
// In TLS the end of a connection is announced by an alert, which cannot be told
// from data: anything that waits there, between two requests, is taken for it.
func (c *conn) Write(b []byte) (int, error) {
	if c.wrote.Swap(true) && c.answered.Swap(false) && !c.lookAway.Load() && c.peek != nil {
		if n, err := c.peek(); err != nil || n > 0 && c.private {
			if err == nil {
				err = io.EOF
			}
			return 0, &net.OpError{Op: "write", Net: "tcp", Addr: c.RemoteAddr(), Err: err}
		}
	}
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

func (c *conn) Close() error {
	c.closed.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}
