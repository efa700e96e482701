package schemas

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// number reads the JSON grammar, which is narrower than strconv's.
func (c *canonicalizer) number() error {
	start := c.at
	c.take('-')
	if !c.take('0') && c.digits() == 0 {
		return c.fail("want a digit")
	}
	if c.take('.') && c.digits() == 0 {
		return c.fail("want a digit behind the point")
	}
	if c.take('e') || c.take('E') {
		if !c.take('+') {
			c.take('-')
		}
		if c.digits() == 0 {
			return c.fail("want a digit in the exponent")
		}
	}
	f, err := strconv.ParseFloat(string(c.in[start:c.at]), 64)
	if err != nil {
		return c.fail("number beyond a double")
	}
	c.out = appendES6Number(c.out, f)
	return nil
}

func (c *canonicalizer) digits() (n int) {
	for b := c.peek(); '0' <= b && b <= '9'; b = c.peek() {
		c.at++
		n++
	}
	return n
}

// appendES6Number writes a finite number as ECMAScript's Number::toString does.
func appendES6Number(b []byte, f float64) []byte {
	if f == 0 {
		return append(b, '0') // also of -0
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(b, f, 'f', -1, 64)
	}
	b = strconv.AppendFloat(b, f, 'e', -1, 64)
	if n := len(b); b[n-2] == '0' && (b[n-3] == '-' || b[n-3] == '+') { // Go writes e-07
		b = append(b[:n-2], b[n-1])
	}
	return b
}

// text reads a string and decodes it.
func (c *canonicalizer) text() (string, error) {
	c.at++
	var s []byte
	for {
		switch b := c.peek(); {
		case c.at == len(c.in):
			return "", c.fail("a string does not end")
		case b == '"':
			c.at++
			return string(s), nil
		case b == '\\':
			r, err := c.escape()
			if err != nil {
				return "", err
			}
			s = utf8.AppendRune(s, r)
		case b < ' ':
			return "", c.fail("a control character in a string")
		case b < utf8.RuneSelf:
			s = append(s, b)
			c.at++
		default:
			r, n := utf8.DecodeRune(c.in[c.at:])
			if r == utf8.RuneError && n == 1 {
				return "", c.fail("invalid UTF-8")
			}
			s = append(s, c.in[c.at:c.at+n]...)
			c.at += n
		}
	}
}

func (c *canonicalizer) escape() (rune, error) {
	c.at++
	b := c.peek()
	c.at++
	switch b {
	case '"', '\\', '/':
		return rune(b), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'u':
		return c.unicode()
	}
	c.at--
	return 0, c.fail("unknown escape")
}

func (c *canonicalizer) unicode() (rune, error) {
	r, ok := c.hex4()
	if !ok {
		return 0, c.fail("want four hex digits")
	}
	if r < 0xd800 || r > 0xdfff {
		return r, nil
	}
	if r >= 0xdc00 || !c.take('\\') || !c.take('u') {
		return 0, c.fail("a lone surrogate")
	}
	low, ok := c.hex4()
	if !ok || low < 0xdc00 || low > 0xdfff {
		return 0, c.fail("a lone surrogate")
	}
	return 0x10000 + (r-0xd800)<<10 + (low - 0xdc00), nil
}

func (c *canonicalizer) hex4() (r rune, ok bool) {
	if len(c.in)-c.at < 4 {
		return 0, false
	}
	for range 4 {
		b := c.in[c.at]
		if 'A' <= b && b <= 'F' {
			b |= 0x20
		}
		d, isHex := unhex(b)
		if !isHex {
			return 0, false
		}
		r = r<<4 | rune(d)
		c.at++
	}
	return r, true
}

func appendCanonicalString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		case c == '\b':
			b = append(b, '\\', 'b')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\f':
			b = append(b, '\\', 'f')
		case c == '\r':
			b = append(b, '\\', 'r')
		default:
			b = appendUnicodeEscape(b, rune(c))
		}
	}
	return append(b, '"')
}
