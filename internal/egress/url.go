package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxURLBytes bounds the URL of an endpoint.
const MaxURLBytes = 2048

// ErrURL is wrapped by every error of CheckURL.
var ErrURL = errors.New("unusable URL")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrURL, fmt.Errorf(format, args...))
}

// CheckURL is the check at registration: it returns the one canonical spelling of
// a URL that may be sent to, as far as that can be seen without asking DNS, or an
// error (wrapping ErrURL) that names what is wrong, its value and what would be
// right. A canonical URL is its own canonical spelling.
func (e *Egress) CheckURL(raw string) (canonical string, err error) {
	u, err := parseURL(raw)
	if err != nil {
		return "", err
	}
	if u.Scheme == "http" && !e.cfg.AllowHTTP {
		return "", refuse("scheme http is not allowed here: use https, or set egress.allow_http")
	}
	port := portOf(u)
	if !e.guard.port(port) {
		return "", refuse("%s", e.guard.portRule(port))
	}
	host := u.Hostname()
	if e.guard.hosts[host] {
		return u.String(), nil
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if rule, ok := e.guard.addr(a); !ok {
			return "", refuse("address %s is not allowed: it is in %s; use a public address, or name its network in egress.allow_cidrs", a, rule)
		}
	}
	if (host == "localhost" || strings.HasSuffix(host, ".localhost")) && !e.guard.anyLoopback() {
		return "", refuse("host %q is this machine (RFC 6761); use a public name, or name it in egress.allow_hosts", host)
	}
	return u.String(), nil
}

func (g *guard) anyLoopback() bool {
	for _, a := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		if _, ok := g.allowedBy(a); ok {
			return true
		}
	}
	return false
}

const noScheme = "the scheme is missing: begin with https://, or with http:// where egress.allow_http is set"

// parseURL reads a URL into its canonical parts; policy is the caller's.
func parseURL(raw string) (*url.URL, error) {
	if err := checkText(raw); err != nil {
		return nil, err
	}
	u, err := url.Parse(raw)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // its text without the URL, which may hold a password
		}
		if !strings.Contains(raw, "://") { // 127.0.0.1:3000/hook
			return nil, refuse(noScheme)
		}
		return nil, refuse("%v", err)
	}
	u.Scheme = strings.ToLower(u.Scheme)
	switch {
	case u.Scheme == "", u.Opaque != "" && u.Opaque[0] >= '0' && u.Opaque[0] <= '9': // localhost:3000/hook
		return nil, refuse(noScheme)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, refuse("scheme %q: want https", u.Scheme)
	case u.Opaque != "" || u.Host == "":
		return nil, refuse("the host is missing: want https://host/path")
	case u.User != nil:
		return nil, refuse("it holds a user name or password before @: give them in the endpoint's auth field (--basic-user, --bearer-file) instead, where they are encrypted")
	}
	if err := normalAuthority(u); err != nil {
		return nil, err
	}
	if u.Path == "" {
		u.Path, u.RawPath = "/", ""
	}
	u.RawQuery = escapeNonASCII(u.RawQuery)
	if text := u.String(); len(text) > MaxURLBytes {
		return nil, refuse("it is %d bytes long, at most %d are allowed", len(text), MaxURLBytes)
	}
	return u, nil
}

func checkText(raw string) error {
	if raw == "" {
		return refuse("it is empty")
	}
	if len(raw) > MaxURLBytes {
		return refuse("it is %d bytes long, at most %d are allowed", len(raw), MaxURLBytes)
	}
	if !utf8.ValidString(raw) {
		return refuse("it is not valid UTF-8")
	}
	if i := strings.IndexFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }); i >= 0 {
		return refuse("it holds %q at position %d: percent-encode it or leave it out", raw[i], i+1)
	}
	if strings.Contains(raw, "#") {
		return refuse("it has a fragment (#…), which is never sent: leave it out")
	}
	return nil
}

// normalAuthority rewrites u.Host: normal host, no default port.
func normalAuthority(u *url.URL) error {
	host, port := u.Hostname(), u.Port()
	bracketed := strings.HasPrefix(u.Host, "[")
	if strings.Contains(host, "%") {
		return refuse("host %q: percent-encoding and IPv6 zones are not allowed in a host", host)
	}
	name, err := normalHost(host)
	if err != nil {
		return refuse("%w", err)
	}
	a, notAddr := netip.ParseAddr(name)
	if bracketed && (notAddr != nil || !a.Is6()) {
		return refuse("host %q: brackets are for IPv6 addresses only", host)
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return refuse("port %q: want 1 to 65535", port)
		}
		if port = strconv.Itoa(int(n)); n == uint64(defaultPort(u.Scheme)) {
			port = ""
		}
	}
	switch {
	case port != "":
		u.Host = net.JoinHostPort(name, port)
	case notAddr == nil && a.Is6():
		u.Host = "[" + name + "]"
	default:
		u.Host = name
	}
	return nil
}

func defaultPort(scheme string) uint16 {
	if scheme == "http" {
		return 80
	}
	return 443
}

func portOf(u *url.URL) uint16 {
	if p := u.Port(); p != "" {
		n, _ := strconv.ParseUint(p, 10, 16) // normalAuthority has seen it
		return uint16(n)
	}
	return defaultPort(u.Scheme)
}

func escapeNonASCII(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if s[i] < 0x80 {
			b.WriteByte(s[i])
			continue
		}
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}
