package verify

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Message is a request that was verified.
type Message struct {
	ID   string    // the same at every attempt; empty when the scheme has no id header
	Time time.Time // when it was signed; zero for scheme Body
	Body []byte    // as it was signed
}

// Verify checks a request against its headers and raw body (not JSON that was
// parsed and written again: a changed space breaks the signature). A refusal is an
// *Error.
func (v *Verifier) Verify(h http.Header, body []byte) (Message, error) {
	m := Message{Body: body}
	list, err := v.header(h)
	if err != nil {
		return Message{}, err
	}
	if v.c.IDHeader != "" {
		if m.ID = h.Get(v.c.IDHeader); m.ID == "" {
			return Message{}, missing(v.c.IDHeader)
		}
		if len(m.ID) > 256 {
			return Message{}, malformed(v.c.IDHeader, "it is longer than 256 bytes")
		}
	}
	stamp := ""
	switch v.c.Scheme {
	case Stripe:
		if stamp, list, err = stripeParts(v.c.Header, list); err != nil {
			return Message{}, err
		}
		m.Time, err = v.time(v.c.Header, stamp)
	case Body:
	default:
		stamp = h.Get(v.c.TimestampHeader)
		m.Time, err = v.time(v.c.TimestampHeader, stamp)
	}
	if err != nil {
		return Message{}, err
	}
	if !slices.ContainsFunc(list, func(s string) bool { return decode(v.c, s) != nil }) {
		return Message{}, malformed(v.c.Header, "it holds no signature of scheme %s", v.c.Scheme)
	}
	if !v.matches(list, m.ID, stamp, body) {
		return Message{}, &Error{Reason: ErrNoMatch, Detail: "another secret, or the body or headers were changed on the way"}
	}
	return m, nil
}

// header returns the signatures of a request, each still in its scheme's wrapping.
func (v *Verifier) header(h http.Header) ([]string, error) {
	values := h.Values(v.c.Header)
	sep := ","
	if v.c.Scheme == Standard || v.c.Scheme == StandardEd25519 {
		sep = " "
	}
	var list []string
	for _, line := range values {
		for part := range strings.SplitSeq(line, sep) {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			if len(list) == MaxSignatures {
				return nil, malformed(v.c.Header, "it holds more than %d parts", MaxSignatures)
			}
			list = append(list, part)
		}
	}
	if len(list) == 0 {
		return nil, missing(v.c.Header)
	}
	return list, nil
}

// stripeParts reads t=…,v1=…,v1=…; other versions are passed over, as Stripe says.
func stripeParts(header string, list []string) (stamp string, sigs []string, err error) {
	for _, part := range list {
		key, value, ok := strings.Cut(part, "=")
		switch {
		case !ok:
			return "", nil, malformed(header, "want t=<seconds>,v1=<hex>")
		case key == "t" && stamp != "":
			return "", nil, malformed(header, "it holds two timestamps")
		case key == "t":
			stamp = value
		case key == "v1":
			sigs = append(sigs, value)
		}
	}
	if stamp == "" || len(sigs) == 0 {
		return "", nil, malformed(header, "want t=<seconds>,v1=<hex>")
	}
	return stamp, sigs, nil
}

// time reads a timestamp of whole seconds and checks that it is near now.
func (v *Verifier) time(header, stamp string) (time.Time, error) {
	if stamp == "" {
		return time.Time{}, missing(header)
	}
	sec, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || sec < 0 || sec > 1<<40 || strconv.FormatInt(sec, 10) != stamp {
		return time.Time{}, malformed(header, "the timestamp is not a number of seconds")
	}
	at := time.Unix(sec, 0)
	switch age := v.c.Now().Sub(at); {
	case age > v.c.Tolerance:
		return time.Time{}, &Error{Reason: ErrStale, Header: header, Detail: "signed " + age.Round(time.Second).String() + " ago; is this machine's clock right?"}
	case age < -v.c.Tolerance:
		return time.Time{}, &Error{Reason: ErrFuture, Header: header, Detail: "signed " + (-age).Round(time.Second).String() + " from now; is this machine's clock right?"}
	}
	return at, nil
}

// matches compares every signature with every secret, and all of them whatever it
// finds, so that its time tells nothing.
func (v *Verifier) matches(list []string, id, stamp string, body []byte) bool {
	found := false
	if v.c.Scheme == StandardEd25519 {
		message := append([]byte(id+"."+stamp+"."), body...)
		for _, key := range v.public {
			for _, s := range list {
				sig := decode(v.c, s)
				found = len(sig) == ed25519.SignatureSize && ed25519.Verify(key, message, sig) || found
			}
		}
		return found
	}
	prefix := ""
	switch v.c.Scheme {
	case Standard:
		prefix = id + "." + stamp + "."
	case Stripe, TimestampBody:
		prefix = stamp + "."
	}
	for _, key := range v.hmac {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(prefix))
		mac.Write(body)
		want := mac.Sum(nil)
		for _, s := range list {
			found = hmac.Equal(decode(v.c, s), want) || found
		}
	}
	return found
}

// decode takes a signature out of its wrapping; nil when it is of another version
// or cannot be read. Unknown versions beside a known one are no error: that is how
// schemes are changed.
func decode(c Config, s string) []byte {
	var raw []byte
	var err error
	switch c.Scheme {
	case Standard, StandardEd25519:
		version := "v1,"
		if c.Scheme == StandardEd25519 {
			version = "v1a,"
		}
		text, ok := strings.CutPrefix(s, version)
		if !ok {
			return nil
		}
		raw, err = base64.StdEncoding.DecodeString(text)
	default:
		text, ok := strings.CutPrefix(s, c.Prefix)
		if !ok {
			return nil
		}
		raw, err = hex.DecodeString(text)
	}
	if err != nil || len(raw) == 0 {
		return nil
	}
	return raw
}
