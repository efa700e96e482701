package egress

import (
	"crypto/tls"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// maxRedials bounds how many kept connections may turn out to be closed for one
// attempt; then the attempt fails.
const maxRedials = 4

// alertBytes is the most that tls.Conn writes by itself when the peer has closed: a
// close_notify takes 23 to 53 bytes with the cipher suites of crypto/tls. The shortest
// request is 44 bytes and 22 of its record, and of a part of a record the peer can
// read nothing.
const alertBytes = 64

// flight is one request on its way: which connection it has, and whether a byte of
// it may have left.
//
// net/http repeats a POST by itself only when its own bookkeeping shows that
// nothing was written. There is a gap in it: when its reading goroutine sees the
// end of an idle connection just after that was chosen for a request, the request
// fails ("server closed idle connection") though nothing was written. The bytes
// counted in conn close the gap.
type flight struct {
	trace  httptrace.ClientTrace
	conn   *conn // nil: none yet, or HTTP/2, whose connections carry several requests
	before int64
	spare  int64 // so many bytes are no request
	reused bool
	at     *atomic.Int64 // the caller's; see Send
}

func (f *flight) gotConn(info httptrace.GotConnInfo) {
	if f.at != nil {
		f.at.CompareAndSwap(0, time.Now().UnixNano())
	}
	f.conn, f.spare = nil, 0
	inner := info.Conn
	if t, ok := inner.(*tls.Conn); ok {
		if t.ConnectionState().NegotiatedProtocol == "h2" {
			return
		}
		inner, f.spare = t.NetConn(), alertBytes
	}
	if c, ok := inner.(*conn); ok {
		f.conn, f.before, f.reused = c, c.written.Load(), info.Reused
		c.starting.Store(info.Reused)
	}
}

// untouched reports that the request was given a kept connection and that not one
// byte of it was written since. net/http returns only after its writer has ended.
func (f *flight) untouched() bool {
	return f.conn != nil && f.reused && f.conn.written.Load()-f.before <= f.spare
}

// send makes one POST, on as many kept connections as turn out to be closed.
func (e *Egress) send(t *http.Transport, req *http.Request, connected *atomic.Int64) (*http.Response, error) {
	f := &flight{at: connected}
	f.trace.GotConn = f.gotConn
	own := req.WithContext(httptrace.WithClientTrace(req.Context(), &f.trace))
	for try := 0; ; try++ {
		resp, err := t.RoundTrip(own)
		if err == nil || try == maxRedials || req.Context().Err() != nil || !f.untouched() {
			return resp, err
		}
		again := *own
		if req.Body != nil && req.Body != http.NoBody {
			if req.GetBody == nil {
				return nil, err
			}
			body, berr := req.GetBody()
			if berr != nil {
				return nil, err
			}
			again.Body = body
		}
		own = &again
	}
}
