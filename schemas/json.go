package schemas

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// asciiJSON says how an ASCII byte stands in a JSON string: 0 as it is, 1 as a
// \u escape, else behind a backslash. Bytes of longer runes have 2.
var asciiJSON = func() (t [256]byte) {
	for c := range t {
		switch {
		case c < ' ' || c == 0x7f:
			t[c] = 1
		case c >= utf8.RuneSelf:
			t[c] = 2
		}
	}
	t['"'], t['\\'], t['\n'], t['\r'], t['\t'] = '"', '\\', 'n', 'r', 't'
	return t
}()

// appendJSONString appends s as a JSON string whose content has at most limit
// bytes, cut between runes. Also escaped are DEL and the C1 controls, which
// terminals obey, and U+2028 and U+2029, which break JavaScript.
func appendJSONString(b []byte, s string, limit int) []byte {
	b = append(b, '"')
	end := math.MaxInt // the length of b at which the limit is reached
	if limit < math.MaxInt-len(b) {
		end = len(b) + limit
	}
	for i := 0; i < len(s); {
		n := i
		for n < len(s) && asciiJSON[s[n]] == 0 {
			n++
		}
		if n-i > end-len(b) {
			return append(append(b, s[i:i+end-len(b)]...), '"')
		}
		if n-i < 16 { // JSON in JSON: a call of memmove for each few bytes costs more
			for ; i < n; i++ {
				b = append(b, s[i])
			}
		} else {
			b = append(b, s[i:n]...)
		}
		if i = n; i == len(s) {
			break
		}
		before, width := len(b), 1
		switch e := asciiJSON[s[i]]; e {
		case 1:
			b = appendUnicodeEscape(b, rune(s[i]))
		case 2:
			var r rune
			r, width = utf8.DecodeRuneInString(s[i:])
			if r < 0xa0 || r == 0x2028 || r == 0x2029 {
				b = appendUnicodeEscape(b, r)
			} else {
				b = utf8.AppendRune(b, r) // invalid bytes come as U+FFFD
			}
		default:
			b = append(b, '\\', e)
		}
		if len(b) > end {
			return append(b[:before], '"')
		}
		i += width
	}
	return append(b, '"')
}

func appendUnicodeEscape(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// appendJSONFloat appends the shortest number that reads back as f; JSON has none
// for NaN and infinities, which become 0.
func appendJSONFloat(b []byte, f float64) []byte {
	abs := math.Abs(f)
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return append(b, '0')
	case f == math.Trunc(f) && abs < 1e15 && (f != 0 || !math.Signbit(f)):
		return strconv.AppendInt(b, int64(f), 10)
	case abs != 0 && (abs < 1e-6 || abs >= 1e21):
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	default:
		return strconv.AppendFloat(b, f, 'f', -1, 64)
	}
}

// appendTime appends t as RFC 3339 in UTC with three digits of a second, or nine
// where t is finer. Years that RFC 3339 does not have become the zero time.
func appendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		t = time.Time{}
		year, month, day = t.Date()
	}
	hour, minute, second := t.Clock()
	b = append(b, byte('0'+year/1000), byte('0'+year/100%10), byte('0'+year/10%10), byte('0'+year%10), '-')
	b = append2(b, int(month), '-')
	b = append2(b, day, 'T')
	b = append2(b, hour, ':')
	b = append2(b, minute, ':')
	b = append2(b, second, '.')
	frac, digits := t.Nanosecond(), 9
	if frac%1_000_000 == 0 {
		frac, digits = frac/1_000_000, 3
	}
	b = append(b, "000000000"[:digits]...)
	for i := len(b) - 1; frac > 0; i-- {
		b[i] = byte('0' + frac%10)
		frac /= 10
	}
	return append(b, 'Z')
}

func append2(b []byte, n int, after byte) []byte {
	return append(b, byte('0'+n/10), byte('0'+n%10), after)
}
