package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/milena-project/milena/internal/egress"
)

// Size is a number of bytes, written as 64KiB or 512MiB.
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  Size
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

// ParseSize reads 64KiB, 512MiB, 10MB, 100B or a bare number of bytes.
func ParseSize(s string) (Size, error) {
	s = strings.TrimSpace(s)
	unit := Size(1)
	number := s
	for _, u := range sizeUnits {
		if head, ok := strings.CutSuffix(s, u.suffix); ok {
			number, unit = strings.TrimSpace(head), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
		return 0, fmt.Errorf("size %q: want a size such as 64KiB or 512MiB", s)
	}
	return Size(n) * unit, nil
}

// String writes a size in the largest binary unit that divides it.
func (s Size) String() string {
	for _, u := range []int{3, 2, 1, 0} {
		if unit := sizeUnits[u]; s >= unit.bytes && s%unit.bytes == 0 {
			return strconv.FormatInt(int64(s/unit.bytes), 10) + unit.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// Share is a part of a whole, from 0 to 1.
type Share float64

// ParseShare reads 0.05, 5%, true (all) or false (none).
func ParseShare(s string) (Share, error) {
	if b, err := parseBool(s); err == nil {
		if b {
			return 1, nil
		}
		return 0, nil
	}
	text, percent := strings.CutSuffix(s, "%")
	f, err := strconv.ParseFloat(text, 64)
	if percent {
		f /= 100
	}
	if err != nil || math.IsNaN(f) || f < 0 || f > 1 {
		return 0, strconv.ErrRange
	}
	return Share(f), nil
}

// String writes a share as a number from 0 to 1.
func (s Share) String() string { return strconv.FormatFloat(float64(s), 'g', -1, 64) }

// The kinds that are told apart by more than their Go type.
type (
	path      string   // of a file; relative to the YAML file that names it
	address   string   // host:port
	addresses []string // each host:port
	upper     string   // upper and lower case are the same
	pairs     map[string]string
)

// parse sets *field from the words of a value: one word, or the items of a list.
// When a word is wrong it says what would be right; empty means that it is set.
func parse(field any, words []string) (want string) {
	switch f := field.(type) {
	case *[]string:
		*f = words
	case *addresses:
		return parseList((*[]string)(f), words, "addresses such as kafka-1:9092,kafka-2:9092", parseBroker)
	case *pairs:
		return parsePairs(f, words)
	case *[]time.Duration:
		return parseList(f, words, "durations such as 10s,5m,2h", parseDuration)
	case *[]netip.Prefix:
		return parseList(f, words, "address ranges such as 10.1.0.0/16,fd00::/8", parsePrefix)
	case *[]egress.PortRange:
		return parseList(f, words, "ports and ranges such as 443,1024-65535", parsePorts)
	default:
		return parseOne(field, strings.Join(words, ","))
	}
	return ""
}

func parseOne(field any, word string) (want string) {
	var err error
	switch f := field.(type) {
	case *string:
		*f = word
	case *path:
		*f = path(word)
	case *upper:
		*f = upper(strings.ToUpper(word))
	case *bool:
		*f, err = parseBool(word)
		want = "true or false"
	case *Share:
		*f, err = ParseShare(word)
		want = "a share from 0 to 1, such as 0.05 or 5%"
	case *int:
		*f, err = strconv.Atoi(word)
		want = "a whole number"
	case *time.Duration:
		*f, err = parseDuration(word)
		want = "a duration such as 250ms, 10s or 2h"
	case *Size:
		*f, err = ParseSize(word)
		want = "a size such as 64KiB or 512MiB"
	case *address:
		if word != "" {
			_, err = parseAddress(word)
		}
		*f = address(word)
		want = "an address such as 127.0.0.1:8080 or :8080"
	default:
		panic(fmt.Sprintf("config: no kind for %T", field))
	}
	if err == nil {
		return ""
	}
	return want
}

func parseList[T any](out *[]T, words []string, want string, one func(string) (T, error)) string {
	list := make([]T, 0, len(words))
	for _, w := range words {
		v, err := one(w)
		if err != nil {
			return fmt.Sprintf("%s; %q is not", want, w)
		}
		list = append(list, v)
	}
	*out = list
	return ""
}

func parsePairs(out *pairs, words []string) string {
	m := make(pairs, len(words))
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		if !ok || name == "" {
			return fmt.Sprintf("pairs such as name=value,name=value; %q is not", w)
		}
		m[name] = value
	}
	*out = m
	return ""
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return false, strconv.ErrSyntax
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && d < 0 {
		err = strconv.ErrRange
	}
	return d, err
}

func parseAddress(s string) (string, error) {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", err
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", err
	}
	return s, nil
}

// parseBroker takes an address whose port may be left out; internal/kafka adds 9092.
func parseBroker(s string) (string, error) {
	if host := strings.Trim(s, "[]"); !strings.Contains(host, ":") || host != s {
		if host != "" && !strings.ContainsAny(host, "/ ]") {
			return s, nil
		}
	}
	return parseAddress(s)
}

func parsePrefix(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Prefix(addr.BitLen())
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err
}

func parsePorts(s string) (egress.PortRange, error) {
	var p egress.PortRange
	err := p.UnmarshalText([]byte(s))
	return p, err
}

// isList reports whether a value of this kind has items.
func isList(field any) bool {
	switch field.(type) {
	case *[]string, *addresses, *pairs, *[]time.Duration, *[]netip.Prefix, *[]egress.PortRange:
		return true
	}
	return false
}

// kindName is what the help of a flag calls its value.
func kindName(field any) string {
	switch field.(type) {
	case *bool:
		return "bool"
	case *Share:
		return "share"
	case *int:
		return "number"
	case *time.Duration:
		return "duration"
	case *Size:
		return "size"
	case *path:
		return "file"
	case *address:
		return "address"
	case *addresses:
		return "addresses"
	case *pairs:
		return "pairs"
	case *[]time.Duration:
		return "durations"
	case *[]netip.Prefix:
		return "ranges"
	case *[]egress.PortRange:
		return "ports"
	case *[]string:
		return "list"
	}
	return "text"
}

// words splits the text of a list at commas; any other text is one word.
func words(field any, text string) []string {
	if !isList(field) {
		return []string{text}
	}
	var list []string
	for w := range strings.SplitSeq(text, ",") {
		if w = strings.TrimSpace(w); w != "" {
			list = append(list, w)
		}
	}
	return list
}
