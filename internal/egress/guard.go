package egress

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"code.dny.dev/ssrf"
)

// guard decides about addresses and ports. It is immutable.
type guard struct {
	cidrs []netip.Prefix
	hosts map[string]bool
	ports []PortRange
	ssrf  *ssrf.Guardian
}

// metadata are addresses that look public and are a cloud's own inside it. The
// metadata services of other clouds are in special-purpose networks already.
var metadata = []struct {
	prefix netip.Prefix
	name   string
}{
	{netip.MustParsePrefix("168.63.129.16/32"), "Azure's platform address"},
}

// special names the networks that ssrf refuses, for messages and Explain; the
// verdict is ssrf's. From the IANA special-purpose registries.
var special = []struct {
	prefix netip.Prefix
	name   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private use"},
	{netip.MustParsePrefix("100.64.0.0/10"), "carrier-grade NAT"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link local, cloud metadata"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private use"},
	{netip.MustParsePrefix("192.0.0.0/24"), "IETF protocol assignments"},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},
	{netip.MustParsePrefix("192.31.196.0/24"), "AS112"},
	{netip.MustParsePrefix("192.52.193.0/24"), "AMT"},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relays"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private use"},
	{netip.MustParsePrefix("192.175.48.0/24"), "AS112"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking"},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "IPv4 inside IPv6"},
	{netip.MustParsePrefix("64:ff9b::/96"), "NAT64"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "local-use NAT64"},
	{netip.MustParsePrefix("100::/64"), "discard"},
	{netip.MustParsePrefix("2001::/32"), "Teredo"},
	{netip.MustParsePrefix("2001::/23"), "IETF protocol assignments"},
	{netip.MustParsePrefix("2001:db8::/32"), "documentation"},
	{netip.MustParsePrefix("2002::/16"), "6to4"},
	{netip.MustParsePrefix("2620:4f:8000::/48"), "AS112"},
	{netip.MustParsePrefix("3fff::/20"), "documentation"},
	{netip.MustParsePrefix("fc00::/7"), "private use"},
	{netip.MustParsePrefix("fe80::/10"), "link local"},
	{netip.MustParsePrefix("fec0::/10"), "site local"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

func newGuard(c Config) *guard {
	g := &guard{cidrs: c.AllowCIDRs, ports: c.AllowedPorts, hosts: map[string]bool{}}
	for _, h := range c.AllowHosts {
		n, _ := normalHost(h) // validate has seen it
		g.hosts[n] = true
	}
	denied := make([]netip.Prefix, 0, len(metadata))
	for _, m := range metadata {
		denied = append(denied, m.prefix)
	}
	g.ssrf = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(denied...))
	return g
}

// allowedBy says which allowed network an address is in. An allowed IPv4 network
// covers the mapped IPv6 spelling of its addresses.
func (g *guard) allowedBy(a netip.Addr) (netip.Prefix, bool) {
	for _, p := range g.cidrs {
		if p.Contains(a) || p.Contains(a.Unmap()) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// addr says whether an address may be connected to, and the rule that decides. The
// mapped spelling of a public IPv4 address is refused: nobody needs it, and what
// it means differs between systems.
func (g *guard) addr(a netip.Addr) (rule string, ok bool) {
	if p, ok := g.allowedBy(a); ok {
		return p.String() + " (allowed network)", true
	}
	if g.ssrf.SafeAddr(a) == nil {
		return "public address", true
	}
	for _, m := range metadata {
		if m.prefix.Contains(a) {
			return m.prefix.String() + " (" + m.name + ")", false
		}
	}
	bare := a.WithZone("") // a prefix never contains an address with a zone
	for _, s := range special {
		if s.prefix.Contains(bare) || (s.prefix.Bits() == 96 && a.Is4In6() && s.name == "IPv4 inside IPv6") {
			return s.prefix.String() + " (" + s.name + ")", false
		}
	}
	return "an address range that is not public", false
}

// port says whether a port may be connected to.
func (g *guard) port(p uint16) bool {
	return slices.ContainsFunc(g.ports, func(r PortRange) bool { return r.From <= p && p <= r.To })
}

func (g *guard) portRule(p uint16) string {
	return fmt.Sprintf("port %d is not among the allowed ports (%s)", p, joinPorts(g.ports))
}

// control is net.Dialer's last word before connect(2): it sees the address that
// the operating system was given, whatever happened before.
func (g *guard) control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return &BlockedError{Host: address, Rule: "network " + network + " is not TCP"}
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &BlockedError{Host: address, Rule: "not an address and port"}
	}
	if rule, ok := g.addr(ap.Addr()); !ok {
		return &BlockedError{Host: ap.Addr().String(), Addr: ap.Addr(), Rule: rule}
	}
	if !g.port(ap.Port()) {
		return &BlockedError{Host: net.JoinHostPort(ap.Addr().String(), fmt.Sprint(ap.Port())), Rule: g.portRule(ap.Port())}
	}
	return nil
}

func joinPorts(list []PortRange) string {
	var b []byte
	for i, p := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, p.String()...)
	}
	return string(b)
}
