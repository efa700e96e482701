package schemas

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"unicode/utf8"
)

// CanonicalJSON writes b as RFC 8785 (JCS) says: no white space, members sorted by
// the UTF-16 code units of their names, numbers and strings as ECMAScript writes
// them. For producers who want one form of a document; Milena itself never touches
// a payload. Numbers are IEEE 754 doubles, so digits beyond those are lost, as the
// RFC has it.
//
// The error, which tells the place, is for what is no I-JSON: bad syntax, bytes
// behind the value, duplicate names, invalid UTF-8, lone surrogates, numbers
// beyond a double; also for more than 1,000 levels.
func CanonicalJSON(b []byte) ([]byte, error) {
	c := canonicalizer{in: b, out: make([]byte, 0, len(b))}
	c.space()
	if err := c.value(0); err != nil {
		return nil, err
	}
	if c.space(); c.at != len(b) {
		return nil, c.fail("unexpected bytes behind the value")
	}
	return c.out, nil
}

const maxCanonicalDepth = 1000

type canonicalizer struct {
	in  []byte
	at  int
	out []byte
}

func (c *canonicalizer) fail(why string) error {
	return errors.New("canonical JSON: " + why + " at byte " + strconv.Itoa(c.at))
}

func (c *canonicalizer) peek() byte { // 0 at the end, which begins nothing
	if c.at < len(c.in) {
		return c.in[c.at]
	}
	return 0
}

func (c *canonicalizer) space() {
	for b := c.peek(); b == ' ' || b == '\t' || b == '\n' || b == '\r'; b = c.peek() {
		c.at++
	}
}

func (c *canonicalizer) take(b byte) bool {
	if c.peek() != b || c.at == len(c.in) {
		return false
	}
	c.at++
	return true
}

func (c *canonicalizer) value(depth int) error {
	if depth > maxCanonicalDepth {
		return c.fail("more than 1000 levels")
	}
	switch b := c.peek(); {
	case b == '{':
		return c.object(depth)
	case b == '[':
		return c.array(depth)
	case b == '"':
		s, err := c.text()
		if err != nil {
			return err
		}
		c.out = appendCanonicalString(c.out, s)
		return nil
	case b == '-' || '0' <= b && b <= '9':
		return c.number()
	}
	for _, word := range []string{"true", "false", "null"} {
		if len(c.in)-c.at >= len(word) && string(c.in[c.at:c.at+len(word)]) == word {
			c.at += len(word)
			c.out = append(c.out, word...)
			return nil
		}
	}
	return c.fail("want a JSON value")
}

func (c *canonicalizer) array(depth int) error {
	c.at++
	c.out = append(c.out, '[')
	if c.space(); c.take(']') {
		c.out = append(c.out, ']')
		return nil
	}
	for {
		c.space()
		if err := c.value(depth + 1); err != nil {
			return err
		}
		c.space()
		switch {
		case c.take(','):
			c.out = append(c.out, ',')
		case c.take(']'):
			c.out = append(c.out, ']')
			return nil
		default:
			return c.fail("want , or ] in an array")
		}
	}
}

// member is one of an object: its decoded name, and where the canonical text of
// name and value stands in the output before it is sorted.
type member struct {
	name     string
	from, to int
}

func (c *canonicalizer) object(depth int) error {
	c.at++
	start := len(c.out)
	var members []member
	if c.space(); !c.take('}') {
		for {
			m, err := c.member(depth)
			if err != nil {
				return err
			}
			members = append(members, m)
			c.space()
			if c.take('}') {
				break
			}
			if !c.take(',') {
				return c.fail("want , or } in an object")
			}
		}
	}
	slices.SortFunc(members, func(a, b member) int { return compareUTF16(a.name, b.name) })
	unsorted := slices.Clone(c.out[start:])
	c.out = append(c.out[:start], '{')
	for i, m := range members {
		if i > 0 {
			if members[i-1].name == m.name {
				return c.fail("duplicate name " + quote([]byte(m.name)) + " in the object that ends")
			}
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, unsorted[m.from-start:m.to-start]...)
	}
	c.out = append(c.out, '}')
	return nil
}

func (c *canonicalizer) member(depth int) (m member, err error) {
	m.from = len(c.out)
	if c.space(); c.peek() != '"' {
		return m, c.fail("want a member's name")
	}
	if m.name, err = c.text(); err != nil {
		return m, err
	}
	c.out = append(appendCanonicalString(c.out, m.name), ':')
	if c.space(); !c.take(':') {
		return m, c.fail("want : behind a member's name")
	}
	c.space()
	err = c.value(depth + 1)
	m.to = len(c.out)
	return m, err
}

// compareUTF16 compares as RFC 8785, 3.2.3 asks. It differs from the order of
// runes where one is beyond U+FFFF (its first unit is a surrogate) and the other
// is U+E000 or above.
func compareUTF16(a, b string) int {
	for a != "" && b != "" {
		r, n := utf8.DecodeRuneInString(a)
		s, m := utf8.DecodeRuneInString(b)
		if r != s {
			return cmp.Compare(unitOrder(r), unitOrder(s))
		}
		a, b = a[n:], b[m:]
	}
	return cmp.Compare(len(a), len(b))
}

// unitOrder is a number in whose order runes are by their UTF-16 code units.
func unitOrder(r rune) rune {
	if r >= 0xe000 && r <= 0xffff {
		return r + 0x110000
	}
	return r
}
