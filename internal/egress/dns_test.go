package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/milena-project/milena/schemas"
)

// dnsServer is a name server on a UDP socket of this machine. Its answers can change
// between two questions.
type dnsServer struct {
	conn net.PacketConn
	wg   sync.WaitGroup

	mu   sync.Mutex
	zone map[string][]netip.Addr // a name without addresses gets SERVFAIL, an unknown one NXDOMAIN
}

func newDNS(t *testing.T) *dnsServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dnsServer{conn: conn, zone: map[string][]netip.Addr{}}
	s.wg.Go(s.serve)
	t.Cleanup(func() { conn.Close(); s.wg.Wait() })
	return s
}

func (s *dnsServer) set(name string, list ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zone[name+"."] = addrs(list...)
}

// resolver is the standard library's, sent to this server.
func (s *dnsServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

func (s *dnsServer) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		if out, ok := s.answer(&m); ok {
			_, _ = s.conn.WriteTo(out, from)
		}
	}
}

func (s *dnsServer) answer(m *dnsmessage.Message) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := m.Questions[0]
	m.Header.Response, m.Additionals = true, nil
	list, known := s.zone[q.Name.String()]
	switch {
	case !known:
		m.Header.RCode = dnsmessage.RCodeNameError
	case len(list) == 0:
		m.Header.RCode = dnsmessage.RCodeServerFailure
	}
	for _, a := range list {
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case q.Type == dnsmessage.TypeAAAA && a.Is6():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	out, err := m.Pack()
	return out, err == nil
}

func TestNamesThatResolveToPrivateAddressesAreBlockedWholly(t *testing.T) {
	dns := newDNS(t)
	d := &noDial{}
	e := mustNew(t, Config{Resolver: dns.resolver(), Dial: d.dial})
	for name, list := range map[string][]string{
		"private.example":     {"10.0.0.1"},
		"metadata.example":    {"169.254.169.254"},
		"mixed.example":       {"8.8.8.8", "10.0.0.1"},
		"mixed6.example":      {"8.8.8.8", "fd00::1"},
		"mapped.example":      {"::ffff:10.0.0.1"},
		"nat64.example":       {"64:ff9b::a00:1"},
		"many-public.example": {"1.1.1.1", "8.8.8.8", "9.9.9.9", "127.0.0.1"},
	} {
		dns.set(name, list...)
		_, err := post(t, e, "https://"+name+"/", time.Minute)
		if b := wantBlocked(t, err); b.Host != name || !b.Addr.IsValid() || b.Rule == "" {
			t.Errorf("%s: %+v", name, b)
		}
	}
	if len(d.asked) != 0 {
		t.Errorf("connections were tried: %v", d.asked)
	}
}

func TestRebindingIsBlockedAtTheNextConnection(t *testing.T) {
	dns := newDNS(t)
	dns.set("rebind.example", "93.184.215.14")
	var hits atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	e := mustNew(t, Config{AllowHTTP: true, Resolver: dns.resolver(), DNSTTL: -1})
	if _, err := e.CheckURL("http://rebind.example:" + port); err != nil {
		t.Fatal(err)
	}
	if v, err := e.Explain(t.Context(), "http://rebind.example:"+port); err != nil || !v.Allowed {
		t.Fatal(v, err)
	}
	dns.set("rebind.example", "127.0.0.1")
	_, err := post(t, e, "http://rebind.example:"+port, time.Minute)
	wantBlocked(t, err)
	if hits.Load() != 0 {
		t.Error("a request reached the private address")
	}
}

// The check of the answer and the connection use the same addresses; this is the
// second line: whatever address the operating system is told, it is checked.
func TestTheLastCheckIsAtConnect(t *testing.T) {
	e := mustNew(t, Config{})
	_, err := e.guarded(t.Context(), "tcp", "127.0.0.1:8080")
	wantBlocked(t, err)
	_, err = e.guarded(t.Context(), "tcp", "localhost:8080")
	wantBlocked(t, err)
	_, err = e.guarded(t.Context(), "tcp", "[::ffff:127.0.0.1]:8080")
	wantBlocked(t, err)
}

func TestAllowedHostsAndNetworks(t *testing.T) {
	dns := newDNS(t)
	dns.set("inside.example", "127.0.0.1")
	dns.set("other.example", "127.0.0.1")
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	e := mustNew(t, Config{AllowHTTP: true, AllowHosts: []string{"Inside.Example."}, Resolver: dns.resolver()})
	if status, err := post(t, e, "http://inside.example:"+port, time.Minute); status != 200 {
		t.Error(status, err)
	}
	_, err := post(t, e, "http://other.example:"+port, time.Minute)
	wantBlocked(t, err)
	_, err = post(t, e, "http://127.0.0.1:"+port, time.Minute)
	wantBlocked(t, err)

	e = mustNew(t, Config{AllowHTTP: true, AllowCIDRs: loopback, Resolver: dns.resolver()})
	if status, err := post(t, e, "http://other.example:"+port, time.Minute); status != 200 {
		t.Error(status, err)
	}
	for _, u := range []string{"http://127.0.0.1:" + port + "/", "http://localhost:" + port + "/"} {
		if got, err := e.CheckURL(u); got != u || err != nil {
			t.Error(got, err)
		}
	}
	if _, err := e.CheckURL("http://10.0.0.1/"); !errors.Is(err, ErrURL) {
		t.Error("a network that is not allowed")
	}
}

func TestPlainHTTPNeedsToBeAllowed(t *testing.T) {
	d := &noDial{}
	e := mustNew(t, Config{Dial: d.dial, Resolver: everything{}})
	if _, err := e.CheckURL("http://example.com/"); !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), "https") {
		t.Error(err)
	}
	_, err := post(t, e, "http://example.com/", time.Second)
	wantBlocked(t, err)
	_, err = post(t, e, "ftp://example.com/", time.Second)
	wantBlocked(t, err)
	if len(d.asked) != 0 {
		t.Errorf("connections were tried: %v", d.asked)
	}
}

func TestDNSFailuresHaveTheirClass(t *testing.T) {
	dns := newDNS(t)
	dns.set("broken.example") // SERVFAIL
	e := mustNew(t, Config{Resolver: dns.resolver()})
	for _, name := range []string{"missing.example", "broken.example"} {
		_, err := post(t, e, "https://"+name, time.Minute)
		wantClass(t, err, schemas.ClassDNS)
	}
	_, err := post(t, mustNew(t, Config{Resolver: silent{}, DialTimeout: 50 * time.Millisecond}), "https://silent.example", time.Minute)
	wantClass(t, err, schemas.ClassDNS)
}

// silent is a resolver whose name server does not answer.
type silent struct{}

func (silent) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, &net.DNSError{Err: "timeout", Name: host, IsTimeout: true, UnwrapErr: ctx.Err()}
}

func TestAnswersAreCachedForTheirTimeAndForgottenOnFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &counting{next: names{"a.example": addrs("8.8.8.8")}}
		e, err := New(Config{Resolver: n, DNSTTL: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		look := func(host string, want int) {
			t.Helper()
			_, _ = e.check(t.Context(), host+":443")
			if n.asked != want {
				t.Errorf("%d questions, want %d", n.asked, want)
			}
		}
		look("a.example", 1)
		time.Sleep(29 * time.Second)
		look("a.example", 1)
		time.Sleep(2 * time.Second)
		look("a.example", 2)
		e.dns.forget("a.example")
		look("a.example", 3)
		look("missing.example", 4)
		time.Sleep(MinDNSTTL - time.Second)
		look("missing.example", 4)
		time.Sleep(2 * time.Second)
		look("missing.example", 5)
	})
}

type counting struct {
	next  Resolver
	asked int
}

func (c *counting) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	c.asked++
	return c.next.LookupNetIP(ctx, network, host)
}

func TestTheCacheIsBounded(t *testing.T) {
	c := newCache(Config{Resolver: everything{}, DNSTTL: MaxDNSTTL})
	for i := range maxCachedNames + 5000 {
		if _, err := c.lookup(t.Context(), "h"+strings.Repeat("x", i%50)+string(rune('a'+i%26))+netip.AddrFrom4([4]byte{1, byte(i >> 16), byte(i >> 8), byte(i)}).String()); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.seen) > maxCachedNames {
		t.Errorf("%d names are kept", len(c.seen))
	}
	c.next = flood{}
	if _, err := c.lookup(t.Context(), "flood.example"); Classify(err) != schemas.ClassDNS {
		t.Errorf("a thousand addresses: %v", err)
	}
}

type flood struct{}

func (flood) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return make([]netip.Addr, 1000), nil
}

func TestExplainShowsEveryAddressAndItsRule(t *testing.T) {
	dns := newDNS(t)
	dns.set("mixed.example", "8.8.8.8", "10.0.0.1")
	e := mustNew(t, Config{Resolver: dns.resolver(), AllowHosts: []string{"inside.example"}})
	dns.set("inside.example", "10.0.0.1")
	v, err := e.Explain(t.Context(), "https://MIXED.example:443/x")
	if err != nil || v.Allowed || v.URL != "https://mixed.example/x" || len(v.Addresses) != 2 || !strings.Contains(v.Why, "10.0.0.1") {
		t.Errorf("%+v %v", v, err)
	}
	for _, a := range v.Addresses {
		if a.Allowed != (a.Addr == netip.MustParseAddr("8.8.8.8")) || a.Rule == "" {
			t.Errorf("%+v", a)
		}
	}
	if v, err := e.Explain(t.Context(), "https://inside.example"); err != nil || !v.Allowed || !strings.Contains(v.Addresses[0].Rule, "allowed host") {
		t.Errorf("%+v %v", v, err)
	}
	if v, err := e.Explain(t.Context(), "http://mixed.example"); err != nil || v.Allowed || len(v.Addresses) != 2 || !strings.Contains(v.Why, "https") {
		t.Errorf("refused at registration, explained all the same: %+v %v", v, err)
	}
	if v, err := e.Explain(t.Context(), "https://2130706433/"); err != nil || v.Allowed || !strings.Contains(v.Why, "127.0.0.1") {
		t.Errorf("%+v %v", v, err)
	}
	if v, err := e.Explain(t.Context(), "https://127.0.0.1/"); err != nil || v.Allowed || len(v.Addresses) != 1 {
		t.Errorf("%+v %v", v, err)
	}
	if v, err := e.Explain(t.Context(), "https://missing.example/"); Classify(err) != schemas.ClassDNS || v.Allowed {
		t.Errorf("%+v %v", v, err)
	}
}

func TestConfigurationsThatCannotWork(t *testing.T) {
	for name, c := range map[string]Config{
		"bits behind the mask": {AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}},
		"host is an address":   {AllowHosts: []string{"10.0.0.1"}},
		"host is none":         {AllowHosts: []string{"a b"}},
		"ports the wrong way":  {AllowedPorts: []PortRange{{10, 5}}},
		"DNS for a second":     {DNSTTL: time.Second},
		"DNS for an hour":      {DNSTTL: time.Hour},
		"proxy DNS, no proxy":  {ProxyDNS: true},
	} {
		if _, err := New(c); err == nil || !strings.HasPrefix(err.Error(), "egress: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var p PortRange
	for text, want := range map[string]PortRange{"443": {443, 443}, "1024+": {1024, 65535}, "8000-8999": {8000, 8999}} {
		if err := p.UnmarshalText([]byte(text)); err != nil || p != want {
			t.Errorf("%s: %v %v", text, p, err)
		}
	}
	for _, text := range []string{"", "0", "x", "9-8", "70000", "-"} {
		if err := p.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: %v", text, p)
		}
	}
}
