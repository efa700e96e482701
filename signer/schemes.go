package signer

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"net/http"
	"strconv"
	"time"
)

// scratch is what one call of Sign needs, kept between calls: the HMAC states
// because their key schedule costs as much as hashing a small body, the buffers
// because hash.Hash makes whatever it is given escape to the heap.
type scratch struct {
	std, text []hash.Hash
	head      []byte // "id.timestamp."
	stamp     []byte // "timestamp.", the end of head
	out       []byte // all header values, one after the other
	names     []string
	ends      []int // where the value of that name ends in out
	active    []int
	sum       [sha256.Size]byte
	at        time.Time
}

func newScratch(s *Signer) *scratch {
	c := &scratch{head: make([]byte, 0, 64), out: make([]byte, 0, 256)}
	for _, k := range s.std.key {
		c.std = append(c.std, hmac.New(sha256.New, k))
	}
	for _, k := range s.text.key {
		c.text = append(c.text, hmac.New(sha256.New, k))
	}
	return c
}

func (c *scratch) begin(id string, at time.Time) {
	c.head = append(append(c.head[:0], id...), '.')
	c.head = append(strconv.AppendInt(c.head, at.Unix(), 10), '.')
	c.stamp = c.head[len(id)+1:]
	c.out, c.names, c.ends, c.at = c.out[:0], c.names[:0], c.ends[:0], at
}

// value ends the header value that was appended to out.
func (c *scratch) value(name string) {
	c.names = append(c.names, name)
	c.ends = append(c.ends, len(c.out))
}

func (c *scratch) id() {
	c.out = append(c.out, c.head[:len(c.head)-len(c.stamp)-1]...)
}

func (c *scratch) timestamp() {
	c.out = append(c.out, c.stamp[:len(c.stamp)-1]...)
}

// mac leaves HMAC(prefix, body) in sum.
func (c *scratch) mac(m hash.Hash, prefix, body []byte) []byte {
	m.Reset()
	m.Write(prefix)
	m.Write(body)
	return m.Sum(c.sum[:0])
}

// set writes all values into h with two allocations: the values share one string
// and one slice. Values of one name follow each other.
func (c *scratch) set(h http.Header) {
	all := string(c.out)
	vals := make([]string, len(c.names))
	start := 0
	for i, end := range c.ends {
		vals[i], start = all[start:end], end
	}
	for i := 0; i < len(vals); {
		j := i + 1
		for j < len(vals) && c.names[j] == c.names[i] {
			j++
		}
		h[c.names[i]] = vals[i:j:j]
		i = j
	}
}

// signStandard writes v1 and v1a: base64 over id.timestamp.body, all signatures in
// one header with a space between them (Standard Webhooks, "Webhook headers").
func (s *Signer) signStandard(c *scratch, body []byte) bool {
	l, start := s.layout, len(c.out)
	if l.standard {
		c.active = s.std.active(c.active[:0], c.at, l.rotation)
		for _, i := range c.active {
			c.separate(start, ' ')
			c.out = append(c.out, "v1,"...)
			c.out = base64.StdEncoding.AppendEncode(c.out, c.mac(c.std[i], c.head, body))
		}
	}
	if l.ed25519 {
		c.active = s.ed.active(c.active[:0], c.at, l.rotation)
		if len(c.active) > 0 {
			message := append(append(make([]byte, 0, len(c.head)+len(body)), c.head...), body...)
			for _, i := range c.active {
				c.separate(start, ' ')
				c.out = append(c.out, "v1a,"...)
				c.out = base64.StdEncoding.AppendEncode(c.out, ed25519.Sign(ed25519.PrivateKey(s.ed.key[i]), message))
			}
		}
	}
	if len(c.out) == start {
		return false
	}
	c.value(l.stdSi)
	c.timestamp()
	c.value(l.stdTime)
	c.id()
	c.value(l.stdID)
	return true
}

// signStripe writes t=<timestamp>,v1=<hex over timestamp.body>, one v1 a key
// (Stripe, "Verify webhook signatures manually").
func (s *Signer) signStripe(c *scratch, body []byte) bool {
	if s.layout.stripe == "" {
		return false
	}
	if c.active = s.text.active(c.active[:0], c.at, s.layout.rotation); len(c.active) == 0 {
		return false
	}
	c.out = append(c.out, "t="...)
	c.timestamp()
	for _, i := range c.active {
		c.out = append(c.out, ",v1="...)
		c.out = hex.AppendEncode(c.out, c.mac(c.text[i], c.stamp, body))
	}
	c.value(s.layout.stripe)
	s.ownID(c, s.layout.stripeID)
	return true
}

// signTimestampBody writes the hex over timestamp.body; with several keys a header
// line each, the newest first: a verifier that reads the first line sees the new
// one, and for a list the lines mean the same as commas (RFC 9110, section 5.3).
func (s *Signer) signTimestampBody(c *scratch, body []byte) bool {
	if s.layout.tsSig == "" {
		return false
	}
	if c.active = s.text.active(c.active[:0], c.at, s.layout.rotation); len(c.active) == 0 {
		return false
	}
	for _, i := range c.active {
		c.out = hex.AppendEncode(c.out, c.mac(c.text[i], c.stamp, body))
		c.value(s.layout.tsSig)
	}
	c.timestamp()
	c.value(s.layout.tsTime)
	s.ownID(c, s.layout.tsID)
	return true
}

// signBody writes the prefix and the hex over the body alone; several keys as in
// signTimestampBody. Nothing ties such a signature to a time or an id.
func (s *Signer) signBody(c *scratch, body []byte) bool {
	if s.layout.body == "" {
		return false
	}
	if c.active = s.text.active(c.active[:0], c.at, s.layout.rotation); len(c.active) == 0 {
		return false
	}
	for _, i := range c.active {
		c.out = append(c.out, s.layout.prefix...)
		c.out = hex.AppendEncode(c.out, c.mac(c.text[i], nil, body))
		c.value(s.layout.body)
	}
	s.ownID(c, s.layout.bodyID)
	return true
}

func (s *Signer) ownID(c *scratch, name string) {
	if name != "" {
		c.id()
		c.value(name)
	}
}

func (c *scratch) separate(start int, sep byte) {
	if len(c.out) > start {
		c.out = append(c.out, sep)
	}
}
