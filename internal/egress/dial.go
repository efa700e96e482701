package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

const (
	// stagger is how long one address may take before the next is tried beside it
	// (RFC 8305, section 5, connection attempt delay).
	stagger = 250 * time.Millisecond
	// maxTried bounds the addresses of one name that are connected to.
	maxTried = 8
)

// target is a checked place to connect to: addresses, or a name that the proxy
// will resolve.
type target struct {
	host  string
	port  uint16
	addrs []netip.Addr
	named bool // the host is in AllowHosts: its addresses are allowed
}

// check resolves addr and passes every address by the guard. One that is refused
// refuses them all: a name that mixes public and private addresses is an attack or
// a mistake, and taking the good ones would make it work by chance.
func (e *Egress) check(ctx context.Context, addr string) (target, error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return target{}, &BlockedError{Host: addr, Rule: "not a host and port"}
	}
	n, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || !e.guard.port(uint16(n)) {
		return target{}, &BlockedError{Host: addr, Rule: e.guard.portRule(uint16(n))}
	}
	name, err := normalHost(host)
	if err != nil {
		return target{}, &BlockedError{Host: host, Rule: err.Error()}
	}
	t := target{host: name, port: uint16(n), named: e.guard.hosts[name]}
	if a, err := netip.ParseAddr(name); err == nil {
		if rule, ok := e.guard.addr(a); !ok {
			return target{}, &BlockedError{Host: host, Addr: a, Rule: rule}
		}
		t.addrs = []netip.Addr{a}
		return t, nil
	}
	if e.proxy != nil && e.cfg.ProxyDNS {
		return t, nil
	}
	if t.addrs, err = e.dns.lookup(ctx, name); err != nil {
		return target{}, err
	}
	for _, a := range t.addrs {
		if rule, ok := e.guard.addr(a); !ok && !t.named {
			return target{}, &BlockedError{Host: host, Addr: a, Rule: rule}
		}
	}
	return t, nil
}

// dial makes the TCP connection for a URL, directly or through the proxy.
func (e *Egress) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	c, err := e.connect(ctx, addr)
	if err != nil {
		return nil, err // never a nil *conn in a net.Conn
	}
	return c, nil
}

func (e *Egress) connect(ctx context.Context, addr string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.DialTimeout)
	defer cancel()
	t, err := e.check(ctx, addr)
	if err != nil {
		return nil, err
	}
	var c net.Conn
	if e.proxy != nil {
		c, err = e.proxy.connect(ctx, t)
	} else {
		c, err = e.race(ctx, t)
	}
	if err != nil {
		e.dns.forget(t.host)
		return nil, err
	}
	return newConn(c, &e.open), nil
}

// race connects to the addresses of a target, families in turn, each a stagger
// after the one before or as soon as that one failed; the first connection wins.
func (e *Egress) race(ctx context.Context, t target) (net.Conn, error) {
	dial := e.guarded
	if t.named {
		dial = e.unguarded
	}
	addrs := interleave(t.addrs)
	if len(addrs) == 1 {
		conn, err := dial(ctx, "tcp", netip.AddrPortFrom(addrs[0], t.port).String())
		return conn, e.explainDial(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the dials that lost
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result, len(addrs)) // buffered: no dial waits for a reader
	timer := time.NewTimer(0)
	defer timer.Stop()
	started, failed := 0, 0
	var errs []error
	for failed < len(addrs) {
		var next <-chan time.Time
		if started < len(addrs) {
			next = timer.C
		}
		select {
		case <-next:
			ap := netip.AddrPortFrom(addrs[started], t.port).String()
			started++
			go func() {
				conn, err := dial(ctx, "tcp", ap)
				results <- result{conn, err}
			}()
			timer.Reset(stagger)
		case r := <-results:
			if r.err == nil {
				open := started - failed - 1
				go func() { // a dial that finished beside the winner
					for range open {
						if late := <-results; late.conn != nil {
							late.conn.Close()
						}
					}
				}()
				return r.conn, nil
			}
			failed++
			errs = append(errs, r.err)
			timer.Reset(0)
		}
	}
	return nil, e.explainDial(worst(errs))
}

// interleave puts the families in turn, beginning with the resolver's first choice.
func interleave(addrs []netip.Addr) []netip.Addr {
	var first, second []netip.Addr
	for _, a := range addrs {
		if a.Unmap().Is4() == addrs[0].Unmap().Is4() {
			first = append(first, a)
		} else {
			second = append(second, a)
		}
	}
	out := make([]netip.Addr, 0, len(addrs))
	for i := range max(len(first), len(second)) {
		if i < len(first) {
			out = append(out, first[i])
		}
		if i < len(second) {
			out = append(out, second[i])
		}
	}
	return out[:min(len(out), maxTried)]
}

// worst picks the error that says most about the endpoint: an address that could
// be tried says more than one for which there is no route.
func worst(errs []error) error {
	for _, err := range errs {
		if !isNoRoute(err) {
			return err
		}
	}
	return errs[0]
}

func isNoRoute(err error) bool {
	return errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.ENETDOWN) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// explainDial sorts the faults of this machine from those of the endpoint. No
// route to one family while there is one to the other is not an outage of ours: an
// endpoint with IPv6 addresses only would else be charged to nobody, for ever.
func (e *Egress) explainDial(err error) error {
	switch {
	case err == nil:
		return nil
	case isNoRoute(err):
		if e.anyRoute() {
			return &UnreachableError{err}
		}
		return &LocalError{err}
	case isLocal(err):
		return &LocalError{err}
	}
	return err
}

// routeProbes are root name servers; connecting a UDP socket only asks the routing
// table, nothing is sent.
var routeProbes = []string{"198.41.0.4:53", "[2001:503:ba3e::2:30]:53"}

func systemHasRoute() bool {
	for _, p := range routeProbes {
		if c, err := net.Dial("udp", p); err == nil {
			c.Close()
			return true
		}
	}
	return false
}
