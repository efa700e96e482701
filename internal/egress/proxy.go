package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"time"
)

// proxy is the forward proxy: the operator's, and so not under the guard.
type proxy struct {
	addr    string // host:port
	host    string
	scheme  string // http, https, socks5
	user    *url.Userinfo
	dial    DialFunc
	tls     *tls.Config
	breaker proxyBreaker
}

func validateProxy(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5":
		return fmt.Errorf("egress: forward proxy: scheme %q: want http://, https:// or socks5://", u.Scheme)
	case u.Hostname() == "":
		return errors.New("egress: forward proxy: the host is missing: want http://host:port")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("egress: forward proxy %s: want no path and no query", u.Host)
	}
	if pass, _ := u.User.Password(); u.Scheme == "socks5" && (len(u.User.Username()) > 255 || len(pass) > 255) {
		return errors.New("egress: forward proxy: SOCKS5 takes user names and passwords of up to 255 bytes (RFC 1929)")
	}
	return nil
}

func newProxy(e *Egress) *proxy {
	u := e.cfg.Proxy
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080"}[u.Scheme]
	}
	return &proxy{
		addr: net.JoinHostPort(u.Hostname(), port), host: u.Hostname(), scheme: u.Scheme, user: u.User,
		dial: e.unguarded, tls: tlsConfig(e.cfg, "http/1.1"),
	}
}

func (p *proxy) fault(status int, why string, err error) *ProxyError {
	return &ProxyError{Proxy: p.addr, Status: status, Why: why, Err: err}
}

// refusal is a fault that the proxy tells of itself.
func (p *proxy) refusal(status int, why string) *ProxyError {
	return &ProxyError{Proxy: p.addr, Status: status, Why: why, answered: true}
}

// connect makes a connection to a target through the proxy. Its errors are
// *ProxyError, except those in which the proxy reports that the target refused or
// could not be reached (SOCKS5 replies 4 to 6: net.OpErrors of a dial; 504 to
// CONNECT: os.ErrDeadlineExceeded), and those of a context that ended.
func (p *proxy) connect(ctx context.Context, t target) (net.Conn, error) {
	if !p.breaker.allow(time.Now()) {
		return nil, p.fault(0, "it failed several times in a row and is left alone for a moment", p.breaker.cause())
	}
	conn, err := p.connectAny(ctx, t)
	switch {
	case broken(err):
		p.breaker.failed(time.Now(), err)
	case err == nil || ctx.Err() == nil:
		p.breaker.worked() // also a target that it could not reach
	default:
		p.breaker.unknown()
	}
	return conn, err
}

// broken: the proxy does not work. One that answers "no" works: that may be about
// one target only (a filtering proxy says 403 or 407), and must not stop the others.
func broken(err error) bool {
	e, ok := errors.AsType[*ProxyError](err)
	return ok && !e.answered
}

// connectAny asks for the addresses of a target in turn. A name that the proxy
// resolves is asked for as it is.
func (p *proxy) connectAny(ctx context.Context, t target) (net.Conn, error) {
	if len(t.addrs) == 0 {
		return p.connectOne(ctx, t.host, t.port)
	}
	var last error
	for _, a := range interleave(t.addrs) {
		conn, err := p.connectOne(ctx, a.Unmap().String(), t.port)
		if err == nil {
			return conn, nil
		}
		last = err
		if pe, ok := errors.AsType[*ProxyError](err); ok && pe.Status < 500 {
			break // it is down or refuses us: it would say the same again
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

func (p *proxy) connectOne(ctx context.Context, host string, port uint16) (net.Conn, error) {
	conn, err := p.dial(ctx, "tcp", p.addr)
	if err != nil {
		if ctx.Err() == context.Canceled {
			return nil, ctx.Err()
		}
		return nil, p.fault(0, "it cannot be connected to", err)
	}
	if p.scheme == "https" {
		secure, err := handshake(ctx, conn, p.tls, p.host)
		if err != nil {
			if errors.Is(err, context.Canceled) {
				return nil, err
			}
			return nil, p.fault(0, "TLS with it failed", err)
		}
		conn = secure
	}
	// The conversation must not outlive the attempt: a deadline in the past ends
	// whatever read or write is going on.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	dst := net.JoinHostPort(host, strconv.Itoa(int(port)))
	var out net.Conn
	if p.scheme == "socks5" {
		out, err = conn, p.socks(conn, host, port)
	} else {
		out, err = p.tunnel(conn, dst)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			// The proxy was reached and waits for the target: the endpoint's
			// timeout. Charging the proxy would let one silent endpoint open the
			// breaker for all.
			return nil, fmt.Errorf("connecting through forward proxy %s: %w", p.addr, ctx.Err())
		}
		return nil, err
	}
	return out, nil
}

// tunnel asks an HTTP proxy for a connection (RFC 9110, section 9.3.6).
func (p *proxy) tunnel(conn net.Conn, dst string) (net.Conn, error) {
	req := "CONNECT " + dst + " HTTP/1.1\r\nHost: " + dst + "\r\n"
	if p.user != nil {
		pass, _ := p.user.Password()
		req += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(p.user.Username()+":"+pass)) + "\r\n"
	}
	if _, err := conn.Write([]byte(req + "\r\n")); err != nil {
		return nil, p.fault(0, "the connection to it broke", err)
	}
	limited := &limitedConn{Conn: conn, left: 64 << 10}
	br := bufio.NewReader(limited)
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // a 2xx to CONNECT has none, else the connection is closed
	if err != nil {
		return nil, p.fault(0, "its answer to CONNECT cannot be read", err)
	}
	if resp.StatusCode == http.StatusGatewayTimeout {
		return nil, fmt.Errorf("forward proxy %s answered 504 to CONNECT: %w", p.addr, os.ErrDeadlineExceeded)
	}
	if resp.StatusCode/100 != 2 {
		return nil, p.refusal(resp.StatusCode, "it answered "+strconv.Itoa(resp.StatusCode)+" "+http.StatusText(resp.StatusCode)+" to CONNECT")
	}
	if br.Buffered() > 0 {
		return nil, p.fault(resp.StatusCode, "it sent data before it was asked", nil)
	}
	return conn, nil
}

// limitedConn bounds what the answer to CONNECT may be.
type limitedConn struct {
	net.Conn
	left int
}

func (c *limitedConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, &ProtocolError{Why: "the answer has no end"}
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

func parseIP(host string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(host)
	return a.Unmap(), err == nil
}
