package signer

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Key is one active secret of an endpoint. Its text is as ParseSecret reads it; for
// stripe, timestamp-body and body any other text of 16 to 512 visible ASCII
// characters will do too, so that a receiver can keep a secret it already has.
type Key struct {
	Secret    string
	ExpiresAt time.Time // it signs before that time; zero: for ever
}

var (
	// ErrNoKey says that no key of the kind that a scheme needs is active.
	ErrNoKey = errors.New("no active signing key")
	// ErrMessageID says that a message id is empty, is no visible ASCII, or holds
	// a full stop, which Standard Webhooks uses as its separator.
	ErrMessageID = errors.New("unusable message id")
)

// Signer signs requests to one endpoint. It is immutable and safe for concurrent
// use; a change of keys or configuration makes another one.
type Signer struct {
	layout *layout
	std    keys      // scheme standard: the decoded bytes
	text   keys      // stripe, timestamp-body, body: the text of the secret
	ed     keys      // standard-ed25519
	pool   sync.Pool // *scratch
}

// keys are the keys of one kind, newest first.
type keys struct {
	key     [][]byte
	expires []time.Time
}

func (k *keys) add(key []byte, expires time.Time) {
	k.key = append(k.key, key)
	k.expires = append(k.expires, expires)
}

// active appends to dst the places of the keys that sign at that time.
func (k *keys) active(dst []int, at time.Time, rotation string) []int {
	for i, e := range k.expires {
		if !e.IsZero() && !at.Before(e) {
			continue
		}
		if rotation == RotationOldUntilExpiry {
			dst = dst[:0]
		}
		dst = append(dst, i)
		if rotation == RotationNewAtOnce {
			break
		}
	}
	return dst
}

// New makes a Signer. The order of keys is newest first. A zero spec means scheme
// standard. Errors wrap ErrSpec, ErrSecret or ErrNoKey and never hold a secret.
func New(spec schemas.Signing, keys []Key) (*Signer, error) {
	l, err := newLayout(spec)
	if err != nil {
		return nil, err
	}
	s := &Signer{layout: l}
	byText := l.stripe != "" || l.tsSig != "" || l.body != ""
	for i, k := range keys {
		sec, err := ParseSecret(k.Secret)
		switch {
		case err == nil && sec.Kind == KindEd25519:
			s.ed.add(sec.Private, k.ExpiresAt)
			continue
		case err == nil:
			s.std.add(sec.Bytes, k.ExpiresAt)
		case !byText || !plainSecret(k.Secret):
			return nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		s.text.add([]byte(k.Secret), k.ExpiresAt)
	}
	switch {
	case l.standard && len(s.std.key) == 0:
		return nil, fmt.Errorf("%w: scheme standard needs a secret %s…", ErrNoKey, PrefixSecret)
	case l.ed25519 && len(s.ed.key) == 0:
		return nil, fmt.Errorf("%w: scheme standard-ed25519 needs a private key %s…", ErrNoKey, PrefixPrivate)
	case byText && len(s.text.key) == 0:
		return nil, fmt.Errorf("%w: the schemes stripe, timestamp-body and body need a secret %s…", ErrNoKey, PrefixSecret)
	}
	if !l.standard {
		s.std.key = nil // no HMAC state for keys that nothing uses
	}
	if !byText {
		s.text.key = nil
	}
	s.pool.New = func() any { return newScratch(s) }
	return s, nil
}

// plainSecret reports whether a text without our prefixes may be a secret of the
// schemes that use the text itself. One that wears a prefix is a damaged one.
func plainSecret(s string) bool {
	for _, p := range []string{PrefixSecret, PrefixPrivate, PrefixPublic} {
		if strings.HasPrefix(s, p) {
			return false
		}
	}
	return len(s) >= 16 && len(s) <= 512 && visible(s)
}

// Sign sets the signature headers of a request that is sent at the time at, in
// place of any that are there. The keys of a scheme that have all expired add
// nothing; when no scheme at all has an active key the error wraps ErrNoKey and h
// is as before. A bad message id is ErrMessageID. The body is only read.
func (s *Signer) Sign(h http.Header, messageID string, at time.Time, body []byte) error {
	if messageID == "" || !visible(messageID) || strings.IndexByte(messageID, '.') >= 0 {
		return fmt.Errorf("%w: %q", ErrMessageID, messageID)
	}
	c := s.pool.Get().(*scratch)
	defer s.pool.Put(c)
	c.begin(messageID, at)
	signed := s.signStandard(c, body)
	signed = s.signStripe(c, body) || signed
	signed = s.signTimestampBody(c, body) || signed
	signed = s.signBody(c, body) || signed
	if !signed {
		return fmt.Errorf("%w at %s", ErrNoKey, at.UTC().Format(time.RFC3339))
	}
	c.set(h)
	return nil
}
