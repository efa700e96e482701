package egress

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// hostProfile maps a name as browsers do (UTS 46, non-transitional): lower case,
// full-width and circled digits to plain ones, international labels to xn--.
// Underscores stay legal, because service names of container networks have them;
// what the mapping leaves is checked by normalHost.
var hostProfile = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.CheckHyphens(false), idna.StrictDomainName(false), idna.Transitional(false))

// normalHost is the one spelling of a host name or address literal (without
// brackets): lower case, ASCII, no trailing dot. Addresses come out as netip
// writes them. Odd spellings of IPv4 addresses are refused, never interpreted:
// systems disagree about what 0177.0.0.1 or 127.1 is.
func normalHost(host string) (string, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return "", fmt.Errorf("host %q: an IPv6 zone means something on one machine only; leave it out", host)
		}
		return a.String(), nil
	}
	if strings.Contains(host, ":") {
		return "", fmt.Errorf("host %q is not an address", host)
	}
	if len(host) > 1024 { // 253 characters of four bytes at most; the mapping's work grows with the square
		return "", fmt.Errorf("host of %d bytes: a name has 1 to 253 characters", len(host))
	}
	name, err := hostProfile.ToASCII(host)
	if err != nil {
		return "", fmt.Errorf("host %q is not a host name: %w", host, err)
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	// What the mapping makes of some invalid names it would itself refuse.
	if again, err := hostProfile.ToASCII(name); err != nil || again != name {
		return "", fmt.Errorf("host %q is not a host name", host)
	}
	if a, err := netip.ParseAddr(name); err == nil {
		return a.String(), nil // full-width digits and the like
	}
	if reading, numeric := oddIPv4(name); numeric {
		return "", &spellingError{host: host, reading: reading}
	}
	if len(name) == 0 || len(name) > 253 {
		return "", fmt.Errorf("host %q: a name has 1 to 253 characters", host)
	}
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(host, label); err != nil {
			return "", err
		}
	}
	return name, nil
}

func checkLabel(host, label string) error {
	if len(label) == 0 || len(label) > 63 {
		return fmt.Errorf("host %q: each part between dots has 1 to 63 characters", host)
	}
	if label[0] == '-' || label[len(label)-1] == '-' {
		return fmt.Errorf("host %q: the part %q begins or ends with a hyphen", host, label)
	}
	for i := range len(label) {
		c := label[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			continue
		}
		return fmt.Errorf("host %q: %q cannot be in a host name", host, string(rune(c)))
	}
	return nil
}

// spellingError is an IPv4 address in a spelling that some systems understand.
type spellingError struct {
	host    string
	reading netip.Addr // what inet_aton makes of it; invalid: nothing
}

func (e *spellingError) Error() string {
	if !e.reading.IsValid() {
		return fmt.Sprintf("host %q looks like an address but is none; write four decimal numbers, or a name", e.host)
	}
	return fmt.Sprintf("host %q is an unusual spelling of the address %s; write it as four decimal numbers", e.host, e.reading)
}

// oddIPv4 reports whether a name would be taken for an IPv4 address by the rules of
// the WHATWG URL standard ("ends in a number"), and what inet_aton reads it as:
// one to four parts, each decimal, octal (0…) or hexadecimal (0x…), the last
// filling all bytes that remain.
func oddIPv4(name string) (reading netip.Addr, numeric bool) {
	parts := strings.Split(name, ".")
	last := parts[len(parts)-1]
	if !allDigits(last) {
		if _, ok := atonPart(last); !ok || !strings.HasPrefix(last, "0x") {
			return netip.Addr{}, false
		}
	}
	if len(parts) > 4 {
		return netip.Addr{}, true
	}
	var value uint64
	for i, p := range parts {
		n, ok := atonPart(p)
		if !ok {
			return netip.Addr{}, true
		}
		if i < len(parts)-1 {
			if n > 255 {
				return netip.Addr{}, true
			}
			value |= n << (8 * (3 - i))
			continue
		}
		if n >= 1<<(8*(5-len(parts))) {
			return netip.Addr{}, true
		}
		value |= n
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), true
}

func atonPart(s string) (uint64, bool) {
	base := 10
	switch {
	case strings.HasPrefix(s, "0x"):
		if s = s[2:]; s == "" {
			return 0, true // "0x" is 0 to browsers
		}
		base = 16
	case len(s) > 1 && s[0] == '0':
		s, base = s[1:], 8
	}
	if s == "" || s[0] == '+' || s[0] == '-' {
		return 0, false
	}
	n, err := strconv.ParseUint(s, base, 64)
	return n, err == nil
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
