package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// fakeProxy speaks CONNECT or SOCKS5 and answers as it is told.
type fakeProxy struct {
	url    *url.URL
	asked  atomic.Value // string: the last target
	conns  atomic.Int32
	answer atomic.Value // string: the answer to CONNECT; or of SOCKS5, one byte
}

func newFakeProxy(t *testing.T, scheme string) *fakeProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &fakeProxy{url: &url.URL{Scheme: scheme, Host: l.Addr().String(), User: url.UserPassword("me", "se:cret")}}
	p.asked.Store("")
	p.answer.Store("")
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.conns.Add(1)
			wg.Go(func() {
				defer c.Close()
				r := bufio.NewReader(c)
				var target string
				if scheme == "http" {
					target = p.connect(c, r)
				} else {
					target = p.socks(c, r)
				}
				if target != "" {
					pipe(c, r, target)
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return p
}

func pipe(c net.Conn, r io.Reader, target string) {
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(out, r); _ = out.(*net.TCPConn).CloseWrite() })
	_, _ = io.Copy(c, out)
	c.Close()
	wg.Wait()
	out.Close()
}

func (p *fakeProxy) connect(c net.Conn, r *bufio.Reader) string {
	req, err := http.ReadRequest(r)
	if err != nil || req.Method != http.MethodConnect {
		return ""
	}
	if want := "Basic " + base64.StdEncoding.EncodeToString([]byte("me:se:cret")); req.Header.Get("Proxy-Authorization") != want {
		_, _ = io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
		return ""
	}
	p.asked.Store(req.Host)
	answer := p.answer.Load().(string)
	if answer == "hang" {
		_, _ = io.Copy(io.Discard, r)
		return ""
	}
	if answer != "" {
		_, _ = io.WriteString(c, answer)
		return ""
	}
	_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
	return p.where(req.Host)
}

// where sends names to this machine, as a proxy with its own name server would.
func (p *fakeProxy) where(host string) string {
	if name, port, _ := net.SplitHostPort(host); net.ParseIP(name) == nil {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return host
}

func (p *fakeProxy) socks(c net.Conn, r *bufio.Reader) string {
	head := make([]byte, 2)
	if _, err := io.ReadFull(r, head); err != nil {
		return ""
	}
	_, _ = r.Discard(int(head[1]))
	_, _ = c.Write([]byte{5, 2})
	auth := make([]byte, 1+1+2+1+7)
	if _, err := io.ReadFull(r, auth); err != nil || string(auth[2:4]) != "me" || string(auth[5:]) != "se:cret" {
		_, _ = c.Write([]byte{1, 1})
		return ""
	}
	_, _ = c.Write([]byte{1, 0})
	req := make([]byte, 4)
	if _, err := io.ReadFull(r, req); err != nil {
		return ""
	}
	var host string
	switch req[3] {
	case 1, 4:
		ip := make([]byte, map[byte]int{1: 4, 4: 16}[req[3]])
		_, _ = io.ReadFull(r, ip)
		host = net.IP(ip).String()
	case 3:
		n, _ := r.ReadByte()
		name := make([]byte, n)
		_, _ = io.ReadFull(r, name)
		host = string(name)
	}
	port := make([]byte, 2)
	_, _ = io.ReadFull(r, port)
	target := net.JoinHostPort(host, fmt.Sprint(int(port[0])<<8|int(port[1])))
	p.asked.Store(target)
	code := byte(0)
	if a := p.answer.Load().(string); a != "" {
		code = a[0]
	}
	_, _ = c.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0})
	if code != 0 {
		return ""
	}
	return p.where(target)
}

func TestThroughAProxyEverythingStillWorksAndIsStillChecked(t *testing.T) {
	ca := newAuthority(t)
	handler := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	plain := httptest.NewServer(http.HandlerFunc(handler))
	defer plain.Close()
	private := secure(t, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "shop.example")}}, true, handler)
	for _, scheme := range []string{"http", "socks5"} {
		for _, remote := range []bool{false, true} {
			t.Run(fmt.Sprint(scheme, " resolves names: ", remote), func(t *testing.T) {
				p := newFakeProxy(t, scheme)
				e := mustNew(t, Config{AllowCIDRs: loopback, AllowHTTP: true, Proxy: p.url, ProxyDNS: remote, RootCAs: ca.pool,
					Resolver: names{"shop.example": addrs("127.0.0.1"), "evil.example": addrs("10.0.0.1")}})
				for _, srv := range []*httptest.Server{plain, private} {
					_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
					proto, _, _ := strings.Cut(srv.URL, ":")
					if status, err := post(t, e, proto+"://shop.example:"+port, time.Minute); status != 200 {
						t.Errorf("%s: %d %v", proto, status, err)
					}
					want := map[bool]string{false: "127.0.0.1:" + port, true: "shop.example:" + port}[remote]
					if got := p.asked.Load(); got != want {
						t.Errorf("the proxy was asked for %s, want %s", got, want)
					}
				}
				before := p.conns.Load()
				for _, u := range []string{"http://10.0.0.1/", "http://[::ffff:10.0.0.1]/", "http://0x0a.1/", "http://shop.example:25/"} {
					_, err := post(t, e, u, time.Minute)
					wantBlocked(t, err)
				}
				if !remote {
					_, err := post(t, e, "http://evil.example/", time.Minute)
					wantBlocked(t, err)
				}
				if p.conns.Load() != before {
					t.Error("the proxy was asked for an address that is not allowed")
				}
			})
		}
	}
}

func TestFaultsOfTheProxyAreNotTheEndpoints(t *testing.T) {
	for name, c := range map[string]struct {
		scheme, answer string
		class          schemas.ErrorClass
		status         int
	}{
		"407":                   {"http", "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", schemas.ClassProxy, 407},
		"403":                   {"http", "HTTP/1.1 403 Forbidden\r\n\r\n", schemas.ClassProxy, 403},
		"502":                   {"http", "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nabc", schemas.ClassProxy, 502},
		"503":                   {"http", "HTTP/1.1 503 Service Unavailable\r\n\r\n", schemas.ClassProxy, 503},
		"504":                   {"http", "HTTP/1.1 504 Gateway Timeout\r\n\r\n", schemas.ClassTimeout, 0},
		"garbage":               {"http", "220 mail.example ESMTP\r\n", schemas.ClassProxy, 0},
		"endless":               {"http", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 200<<10), schemas.ClassProxy, 0},
		"answers early":         {"http", "HTTP/1.1 200 OK\r\n\r\nmore", schemas.ClassProxy, 200},
		"closes":                {"http", "HTTP/1.1 2", schemas.ClassProxy, 0},
		"hangs on the target":   {"http", "hang", schemas.ClassTimeout, 0},
		"socks: general":        {"socks5", "\x01", schemas.ClassProxy, 0},
		"socks: rules":          {"socks5", "\x02", schemas.ClassProxy, 0},
		"socks: no network":     {"socks5", "\x03", schemas.ClassProxy, 0},
		"socks: unreachable":    {"socks5", "\x04", schemas.ClassConnect, 0},
		"socks: refused":        {"socks5", "\x05", schemas.ClassConnect, 0},
		"socks: TTL expired":    {"socks5", "\x06", schemas.ClassTimeout, 0},
		"socks: unknown answer": {"socks5", "\x63", schemas.ClassProxy, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFakeProxy(t, c.scheme)
			p.answer.Store(c.answer)
			dial := time.Minute
			if c.answer == "hang" {
				dial = 300 * time.Millisecond
			}
			e := mustNew(t, Config{Proxy: p.url, Resolver: everything{}, DialTimeout: dial})
			_, err := post(t, e, "https://shop.example/", time.Minute)
			wantClass(t, err, c.class)
			if pe, ok := errors.AsType[*ProxyError](err); ok && pe.Status != c.status {
				t.Errorf("status %d, want %d", pe.Status, c.status)
			}
			if strings.Contains(err.Error(), "cret") {
				t.Errorf("the error holds the proxy's password: %v", err)
			}
		})
	}
	down := &url.URL{Scheme: "http", Host: testkit.ReserveAddr(t)}
	_, err := post(t, mustNew(t, Config{Proxy: down, Resolver: everything{}}), "https://shop.example/", time.Minute)
	wantClass(t, err, schemas.ClassProxy)
	p := newFakeProxy(t, "socks5")
	p.url.User = url.UserPassword("me", "wrong!!")
	_, err = post(t, mustNew(t, Config{Proxy: p.url, Resolver: everything{}}), "https://shop.example/", time.Minute)
	wantClass(t, err, schemas.ClassProxy)
}

func TestABrokenProxyIsLeftAloneAndProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials, down := 0, true
		e, err := New(Config{Proxy: &url.URL{Scheme: "http", Host: "proxy.example:3128"}, Resolver: everything{},
			Dial: (&refusing{dials: &dials, down: &down}).dial})
		if err != nil {
			t.Fatal(err)
		}
		try := func(wantDials int, class schemas.ErrorClass) {
			t.Helper()
			_, err := e.dial(t.Context(), "tcp", "shop.example:443")
			if Classify(err) != class || dials != wantDials {
				t.Errorf("class %q after %d dials, want %q after %d: %v", Classify(err), dials, class, wantDials, err)
			}
		}
		for i := range proxyFaults {
			try(i+1, schemas.ClassProxy)
		}
		try(proxyFaults, schemas.ClassProxy) // at rest
		time.Sleep(proxyRest)
		try(proxyFaults+1, schemas.ClassProxy) // the probe
		try(proxyFaults+1, schemas.ClassProxy)
		time.Sleep(proxyRest)
		down = false
		try(proxyFaults+2, "")
		try(proxyFaults+3, "")
	})
}

// refusing is the way to a proxy that is down, or that grants every tunnel.
type refusing struct {
	dials *int
	down  *bool
}

func (r *refusing) dial(_ context.Context, network, _ string) (net.Conn, error) {
	*r.dials++
	if *r.down {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		if _, err := http.ReadRequest(bufio.NewReader(there)); err == nil {
			_, _ = io.WriteString(there, "HTTP/1.1 200 OK\r\n\r\n")
		}
	}()
	return here, nil
}

func TestProxyAddressesThatCannotWork(t *testing.T) {
	for _, text := range []string{"ftp://proxy:1", "http:///", "http://proxy/path", "http://proxy?x=1", "socks5://" + strings.Repeat("u", 256) + ":p@proxy", "proxy:3128"} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(Config{Proxy: u}); err == nil || !strings.HasPrefix(err.Error(), "egress: ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
