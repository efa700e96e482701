package flowtest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/egress"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
)

// receiverHost is the one name whose addresses are allowed: the receivers of a test
// stand under it on loopback, and every other way to this machine is refused as it
// is in production.
const receiverHost = "hooks.example"

// hostile is an installation whose names and connections are the test's.
type hostile struct {
	*flow
	ca *testkit.Authority

	mu      sync.Mutex
	dns     map[string]func() ([]netip.Addr, error) // guarded by mu
	refused map[string]error                        // by address: what a connection to it fails with; guarded by mu
	open    []net.Conn                              // guarded by mu
	dialled []string                                // guarded by mu
}

func newHostile(t *testing.T, opts ...testkit.ReceiverOption) *hostile {
	t.Helper()
	h := &hostile{flow: newFlow(t, opts...), ca: testkit.NewAuthority(t)}
	h.dns = map[string]func() ([]netip.Addr, error){receiverHost: resolvesTo("127.0.0.1")}
	h.refused = map[string]error{}
	h.cfg.Egress.AllowCIDRs = nil
	h.cfg.Egress.AllowHosts = []string{receiverHost}
	h.opts.Egress = func(c *egress.Config) {
		c.Resolver, c.RootCAs, c.Dial, c.DNSTTL = h, h.ca.Pool(), h.dial, -1
	}
	return h
}

// strictAdmin lets administration check URLs as the processes of h do; newFlow's
// allows this machine.
func (h *hostile) strictAdmin() {
	h.t.Helper()
	ring, err := registry.ParseKeyRing(h.cfg.Keyring)
	must(h.t, err)
	out, err := egress.New(h.cfg.EgressConfig())
	must(h.t, err)
	h.admin = registry.NewAdmin(h.cfg.KafkaConfig(h.logs), ring, registry.AdminOptions{CheckURL: out.CheckURL})
	h.t.Cleanup(h.admin.Close)
}

func resolvesTo(addrs ...string) func() ([]netip.Addr, error) {
	var list []netip.Addr
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	return func() ([]netip.Addr, error) { return append([]netip.Addr(nil), list...), nil }
}

func failsWith(err error) func() ([]netip.Addr, error) {
	return func() ([]netip.Addr, error) { return nil, err }
}

// LookupNetIP makes it the egress's resolver.
func (h *hostile) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	h.mu.Lock()
	answer := h.dns[host]
	h.mu.Unlock()
	if answer == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return answer()
}

func (h *hostile) resolve(host string, answer func() ([]netip.Addr, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dns[host] = answer
}

// dial notes where a packet was about to go.
func (h *hostile) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	h.mu.Lock()
	h.dialled = append(h.dialled, addr)
	err := h.refused[addr]
	if err == nil {
		err = h.refused["*"]
	}
	h.mu.Unlock()
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		h.mu.Lock()
		h.open = append(h.open, c)
		h.mu.Unlock()
	}
	return c, err
}

// unplug ends every connection and makes new ones fail.
func (h *hostile) unplug(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused["*"] = err
	for _, c := range h.open {
		_ = c.Close()
	}
	h.open = nil
}

// refuse makes connections to an address fail ("*": to all); nil ends it.
func (h *hostile) refuse(addr string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused[addr] = err
}

func (h *hostile) dials() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.dialled...)
}

// enrol writes endpoints into the registry as they are, past the checks of
// registration: the configuration may have been another one when they were made. It
// returns their secrets.
func (f *flow) enrol(eps ...*schemas.Endpoint) map[string]string {
	f.t.Helper()
	ring, err := registry.ParseKeyRing(f.cfg.Keyring)
	must(f.t, err)
	secrets := make(map[string]string)
	var recs []*kgo.Record
	for _, ep := range eps {
		now := time.Now().UTC()
		ep.State, ep.Version, ep.CreatedAt, ep.UpdatedAt = schemas.StateEnabled, 1, now, now
		ep.EventTypes = []string{"*"}
		secrets[ep.ID], err = signer.GenerateSecret(0)
		must(f.t, err)
		sealed, err := ring.Seal(ep.ID, secrets[ep.ID])
		must(f.t, err)
		ep.Secrets = []schemas.Secret{{Sealed: sealed, CreatedAt: now}}
		if ep.Auth != nil && ep.Auth.Basic != nil {
			ep.Auth.Basic.Password, err = ring.Seal(ep.ID, ep.Auth.Basic.Password)
		} else if ep.Auth != nil {
			ep.Auth.Bearer, err = ring.Seal(ep.ID, ep.Auth.Bearer)
		}
		must(f.t, err)
		value, err := json.Marshal(ep)
		must(f.t, err)
		recs = append(recs, &kgo.Record{Topic: f.names().Endpoints(), Key: []byte(ep.ID), Value: value})
	}
	must(f.t, f.client.ProduceSync(f.t.Context(), recs...).FirstErr())
	return secrets
}

// caller is one connection to a scripted receiver.
type caller struct {
	*testkit.RawConn

	log *posts
}

// posts is a scripted receiver's own log.
type posts struct {
	mu    sync.Mutex
	all   []post
	ended int // connections whose script has come to its end
}

type post struct {
	method string
	header http.Header
	body   []byte
}

func (p *posts) add(one post) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, one)
}

func (p *posts) list() []post {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]post(nil), p.all...)
}

func (p *posts) scriptsEnded() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// request reads one whole request; false: there is none.
func (c *caller) request() bool {
	req, body, err := c.ReadRequest()
	if err != nil {
		return false
	}
	c.log.add(post{req.Method, req.Header, body})
	return true
}

// trickle says s byte by byte until the client is gone.
func (c *caller) trickle(s string, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % len(s) {
		if c.Say(s[i:i+1]) != nil {
			return
		}
		select {
		case <-tick.C:
		case <-c.Done:
			return
		}
	}
}

// listen starts a scripted receiver; a nil configuration is plain TCP.
func (h *hostile) listen(conf *tls.Config, script func(*caller)) (url string, log *posts) {
	h.t.Helper()
	log = &posts{}
	r := testkit.NewRawReceiver(h.t, conf, func(c *testkit.RawConn) {
		script(&caller{c, log})
		_ = c.Close() // before anybody is told that the script has ended
		log.mu.Lock()
		log.ended++
		log.mu.Unlock()
	})
	return strings.Replace(r.URL("/hook"), "127.0.0.1", receiverHost, 1), log
}

// checkPost demands that a request is the producer's bytes with a signature of them.
func checkPost(t *testing.T, p post, secret string, body []byte) {
	t.Helper()
	if p.method != http.MethodPost || string(p.body) != string(body) {
		t.Errorf("%s of %d bytes came, not a POST of the producer's %d", p.method, len(p.body), len(body))
	}
	if v := p.header.Get("Accept-Encoding"); v != "" {
		t.Errorf("Accept-Encoding: %s", v)
	}
	w, err := standardwebhooks.NewWebhook(secret)
	must(t, err)
	if err := w.Verify(p.body, p.header); err != nil {
		t.Errorf("the signature does not verify: %v", err)
	}
}

var loopbackOnly = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
