package egress

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Egress is the one way out. It is safe for concurrent use.
type Egress struct {
	cfg   Config
	guard *guard
	dns   *cache
	tls   *tls.Config
	proxy *proxy // nil: direct

	guarded, unguarded DialFunc
	anyRoute           func() bool // whether this machine has a route to anywhere

	transport  *http.Transport
	identities identities
	open       atomic.Int64
}

// keepAlive is the time between TCP probes of a silent connection.
const keepAlive = 15 * time.Second

// New makes the way out. Errors name the field of Config and what would be right.
func New(cfg Config) (*Egress, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	e := &Egress{cfg: cfg, guard: newGuard(cfg), dns: newCache(cfg), tls: tlsConfig(cfg, "h2", "http/1.1"), anyRoute: systemHasRoute}
	e.guarded, e.unguarded = cfg.Dial, cfg.Dial
	if cfg.Dial == nil {
		e.unguarded = (&net.Dialer{KeepAlive: keepAlive}).DialContext
		e.guarded = (&net.Dialer{KeepAlive: keepAlive, Control: e.guard.control}).DialContext
	}
	if cfg.Proxy != nil {
		e.proxy = newProxy(e)
	}
	var err error
	e.transport, err = e.newTransport(e.tls, cfg.MaxIdleConns)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// newTransport makes connections that present themselves as conf says.
func (e *Egress) newTransport(conf *tls.Config, maxIdle int) (*http.Transport, error) {
	cfg := &e.cfg
	t := &http.Transport{
		DialContext: e.dial,
		DialTLSContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return e.dialTLS(ctx, addr, conf)
		},
		DisableCompression:     true, // no Accept-Encoding: a bomb stays a small body
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    min(maxIdle, cfg.MaxIdleConnsPerHost),
		IdleConnTimeout:        cfg.IdleTimeout,
		MaxResponseHeaderBytes: cfg.MaxHeaderBytes, // 1xx responses count into it
		HTTP2: &http.HTTP2Config{
			// A connection whose peer has vanished would swallow every request until
			// the kernel gives up, a quarter of an hour later.
			SendPingTimeout:  10 * time.Second,
			PingTimeout:      5 * time.Second,
			WriteByteTimeout: 10 * time.Second,
			// Answers are read up to 16 KiB; more window is only memory.
			MaxReceiveBufferPerConnection: 256 << 10,
			MaxReceiveBufferPerStream:     32 << 10,
		},
	}
	if err := e.configureH2(t); err != nil {
		return nil, fmt.Errorf("egress: HTTP/2: %w", err)
	}
	return t, nil
}

// RoundTripper sends one request and never follows a redirect. The caller sets a
// deadline, and GetBody where there is a body (without it a keep-alive connection
// that was closed while idle costs an attempt). A body that is a bytes.Reader in
// io.NopCloser leaves in one write with the headers; others in two. An
// Idempotency-Key header is refused: with it net/http sends a POST again after
// bytes were written. A Got1xxResponse hook of the caller's must bound the number
// of answers, else MaxHeaderBytes does. Errors are for Classify.
func (e *Egress) RoundTripper() http.RoundTripper { return (*roundTripper)(e) }

type roundTripper Egress

// RoundTrip implements http.RoundTripper.
func (r *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	return (*Egress)(r).Send(req, nil)
}

// Send is RoundTrip that also tells when the request had a connection, a moment
// before its first byte left: connected is set to that time in unix nanoseconds,
// once, and stays 0 when there never was one. It may be nil.
func (e *Egress) Send(req *http.Request, connected *atomic.Int64) (*http.Response, error) {
	return e.sendBy(e.transport, req, connected)
}

func (e *Egress) sendBy(t *http.Transport, req *http.Request, connected *atomic.Int64) (*http.Response, error) {
	switch req.URL.Scheme {
	case "https":
	case "http":
		if !e.cfg.AllowHTTP {
			closeBody(req)
			return nil, &BlockedError{Host: req.URL.Host, Rule: "plain http is not allowed"}
		}
	default:
		closeBody(req)
		return nil, &BlockedError{Host: req.URL.Host, Rule: "scheme " + req.URL.Scheme + " is not http or https"}
	}
	for _, name := range [...]string{"Idempotency-Key", "X-Idempotency-Key"} {
		if _, has := req.Header[name]; has {
			closeBody(req)
			return nil, &RequestError{Header: name, Why: "makes net/http send a POST again after it was processed"}
		}
	}
	resp, err := e.send(t, req, connected)
	if err != nil {
		return nil, mark(req, err)
	}
	if resp.ProtoMajor != 1 && resp.ProtoMajor != 2 {
		resp.Body.Close()
		return nil, &ProtocolError{Why: "the answer says that it is of version " + resp.Proto}
	}
	if !ValidStatus(resp.StatusCode) {
		resp.Body.Close()
		return nil, &ProtocolError{Why: fmt.Sprintf("status %d is not one of HTTP's final ones (200 to 599)", resp.StatusCode)}
	}
	return resp, nil
}

// ValidStatus reports whether a status can be the final answer to a POST: 200 to
// 599 (RFC 9110, section 15). 101 would answer an Upgrade that was not asked for.
func ValidStatus(code int) bool { return code >= 200 && code <= 599 }

// mark says where an error without a type came from. It looks for the caller's
// mistakes only now, when there is an error to explain.
func mark(req *http.Request, err error) error {
	for name, values := range req.Header {
		for _, v := range values {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(v) {
				return &RequestError{Header: name, Why: "has a name or value that HTTP does not allow"}
			}
		}
	}
	return &TransportError{Err: err}
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// Open is the number of connections that are open now, idle ones included.
func (e *Egress) Open() int64 { return e.open.Load() }

// CloseIdle closes the connections that carry no request.
func (e *Egress) CloseIdle() {
	e.transport.CloseIdleConnections()
	e.identities.closeIdle()
}
