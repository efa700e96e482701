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
	starting atomic.Bool               // the next write begins a request on a kept connection; set by flight
	written  atomic.Int64              // bytes; see flight
}

func newConn(c net.Conn, open *atomic.Int64) *conn {
	open.Add(1)
	out := &conn{Conn: c, open: open}
	if sc, ok := c.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			out.peek = peeker(raw)
		}
	}
	return out
}

// Write looks before the first write of a request. Whatever waits there between two
// requests is the end of the connection: a FIN, a 408, or in TLS the alert that
// announces it, which cannot be told from data.
func (c *conn) Write(b []byte) (int, error) {
	if c.starting.Load() && c.starting.Swap(false) && c.peek != nil {
		if n, err := c.peek(); n > 0 || err != nil {
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
