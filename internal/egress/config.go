package egress

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Resolver turns a host name into addresses; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// DialFunc makes a connection, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// PortRange is a range of TCP ports, both ends included.
type PortRange struct{ From, To uint16 }

// DefaultPorts are 80, 443 and 1024 to 65535: the web's own, and those that need
// no privilege. What listens below 1024 beside them is mail, shells and databases.
var DefaultPorts = []PortRange{{80, 80}, {443, 443}, {1024, 65535}}

// UnmarshalText reads "443", "1024-65535" or "1024+".
func (p *PortRange) UnmarshalText(text []byte) error {
	s := string(text)
	from, to, ranged := strings.Cut(s, "-")
	if rest, open := strings.CutSuffix(s, "+"); open {
		from, to, ranged = rest, "65535", true
	}
	if !ranged {
		to = from
	}
	a, errA := strconv.ParseUint(from, 10, 16)
	b, errB := strconv.ParseUint(to, 10, 16)
	if errA != nil || errB != nil || a == 0 || a > b {
		return fmt.Errorf("port range %q: want a port, or a range such as 1024-65535", s)
	}
	p.From, p.To = uint16(a), uint16(b)
	return nil
}

func (p PortRange) String() string {
	if p.From == p.To {
		return strconv.Itoa(int(p.From))
	}
	return fmt.Sprintf("%d-%d", p.From, p.To)
}

// MarshalText writes what UnmarshalText reads.
func (p PortRange) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Config says what may be connected to and how. The zero Config is the production
// default: public addresses, https only, no proxy.
type Config struct {
	AllowCIDRs   []netip.Prefix // own networks that endpoints may be in
	AllowHosts   []string       // exact host names whose addresses are allowed, whatever they are
	AllowHTTP    bool           // plain http URLs too
	AllowedPorts []PortRange    // default DefaultPorts

	// Proxy is http://, https:// or socks5:// with optional user:password@; nil
	// connects directly. Proxy variables of the environment are never read.
	Proxy    *url.URL
	ProxyDNS bool // the proxy resolves names; see the package's doc for what that costs

	MaxIdleConns        int           // in all; the oldest idle one is closed first; default 4096
	MaxIdleConnsPerHost int           // default as MaxIdleConns: many endpoints share a host
	IdleTimeout         time.Duration // default 30 s
	DialTimeout         time.Duration // of one connection, TLS included; default 10 s
	DNSTTL              time.Duration // answers are kept that long, 5 s to 60 s; default 30 s; negative: never
	MaxHeaderBytes      int64         // of all response headers, 1xx ones included; default 64 KiB

	Resolver Resolver       // default: the system's
	RootCAs  *x509.CertPool // default: the system's
	Dial     DialFunc       // makes TCP connections in place of the operating system's; for tests
}

// Bounds of Config.DNSTTL. The system's resolver does not tell the time to live of
// an answer: the floor keeps one lookup per connection away from the name server,
// the ceiling lets a receiver move within a minute.
const (
	MinDNSTTL = 5 * time.Second
	MaxDNSTTL = 60 * time.Second
)

func (c Config) withDefaults() Config {
	def(&c.MaxIdleConns, 4096)
	def(&c.MaxIdleConnsPerHost, c.MaxIdleConns)
	def(&c.IdleTimeout, 30*time.Second)
	def(&c.DialTimeout, 10*time.Second)
	def(&c.DNSTTL, 30*time.Second)
	def(&c.MaxHeaderBytes, 64<<10)
	if len(c.AllowedPorts) == 0 {
		c.AllowedPorts = DefaultPorts
	}
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	return c
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c Config) validate() error {
	for _, p := range c.AllowCIDRs {
		if !p.IsValid() || p != p.Masked() {
			return fmt.Errorf("egress: allowed network %s: want a network such as 10.0.0.0/8, without bits behind the mask", p)
		}
	}
	for _, h := range c.AllowHosts {
		if _, err := netip.ParseAddr(h); err == nil {
			return fmt.Errorf("egress: allowed host %q is an address: allow it as a network (%s/32 or /128)", h, h)
		}
		if _, err := normalHost(h); err != nil {
			return fmt.Errorf("egress: allowed host: %w", err)
		}
	}
	for _, p := range c.AllowedPorts {
		if p.From == 0 || p.From > p.To {
			return fmt.Errorf("egress: allowed ports %d-%d: want 1 ≤ from ≤ to", p.From, p.To)
		}
	}
	if c.DNSTTL > 0 && (c.DNSTTL < MinDNSTTL || c.DNSTTL > MaxDNSTTL) {
		return fmt.Errorf("egress: DNS answers kept for %s: want %s to %s, or a negative value for never", c.DNSTTL, MinDNSTTL, MaxDNSTTL)
	}
	if c.Proxy != nil {
		return validateProxy(c.Proxy)
	}
	if c.ProxyDNS {
		return fmt.Errorf("egress: the proxy is to resolve names, but no proxy is set")
	}
	return nil
}
