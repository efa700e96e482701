package schemas

import (
	"strconv"
	"unicode"
	"unicode/utf8"
)

// CleanError makes a text fit for HeaderError and for terminals: at most
// MaxErrorLen bytes, cut between runes; invalid UTF-8 becomes U+FFFD, control and
// formatting characters (line ends, terminal escapes, direction overrides) become
// spaces. What is clean already is returned as it is.
func CleanError(s string) string { return CleanText(s, MaxErrorLen) }

// CleanText is CleanError with a bound of the caller's, in bytes.
func CleanText(s string, limit int) string {
	if len(s) <= limit && isClean(s) {
		return s
	}
	b := make([]byte, 0, min(len(s), limit))
	for _, r := range s { // invalid bytes come as U+FFFD
		if !cleanRune(r) {
			r = ' '
		}
		if len(b)+utf8.RuneLen(r) > limit {
			break
		}
		b = utf8.AppendRune(b, r)
	}
	return string(b)
}

func isClean(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return isCleanUTF8(s)
		}
	}
	return true
}

func isCleanUTF8(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !cleanRune(r) {
			return false
		}
	}
	return true
}

func cleanRune(r rune) bool {
	return r >= ' ' && !unicode.Is(unicode.Cc, r) && !unicode.Is(unicode.Cf, r) && r != 0x2028 && r != 0x2029
}

// quote writes what stood in a record for an error text: ASCII, short.
func quote(b []byte) string {
	const limit = 64
	if len(b) > limit {
		return strconv.QuoteToASCII(string(b[:limit])) + "…"
	}
	return strconv.QuoteToASCII(string(b))
}
