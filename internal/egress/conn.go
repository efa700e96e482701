package egress

import (
	"net"
	"sync"
	"sync/atomic"
)

// countedConn keeps the number of open connections true.
type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}
