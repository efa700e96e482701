package registry

import (
	"crypto/cipher"
	"errors"
	"testing"

	"github.com/milena-project/milena/schemas"
)

func TestNothingIsSealedWithAKeyRingThatIsNotTheInstallations(t *testing.T) {
	cfg := newConfig(t)
	right := ringOf(t, "k1")
	a := newAdmin(t, cfg, right)
	mustCreate(t, a, sample("shop"))

	for name, c := range map[string]struct {
		ring  *KeyRing
		wrong bool
	}{
		"another key of the same id":           {ringOf(t, "k1"), true},
		"another key alone":                    {ringOf(t, "k2"), false},
		"a new key before another of the same": {ringOf(t, "k2", "k1"), true},
		"another of the same before a new one": {joined(ringOf(t, "k1"), "k1", ringOf(t, "k2")), true},
	} {
		b := newAdmin(t, cfg, c.ring)
		check := func(what string, err error) {
			t.Helper()
			var key *MissingKeyError
			if !errors.As(err, &key) || key.KeyID != "k1" || key.EndpointID != "shop" || key.Wrong != c.wrong {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		_, err := b.Create(t.Context(), operator, sample("other"))
		check("create", err)
		_, err = b.RotateSecret(t.Context(), operator, "shop", DefaultOverlap)
		check("rotate", err)
		_, err = b.Update(t.Context(), operator, "shop", 0, func(ep *Endpoint) error {
			ep.Auth = &schemas.Auth{Bearer: "t0ken"}
			return nil
		})
		check("update with a token", err)
		if _, err := b.Update(t.Context(), operator, "shop", 0, func(ep *Endpoint) error {
			ep.Description = name
			return nil
		}); err != nil {
			t.Errorf("%s: a change that seals nothing: %v", name, err)
		}
	}
	if ep, err := a.Get(t.Context(), "shop"); err != nil || len(ep.Secrets) != 1 || ep.Auth != nil {
		t.Errorf("%+v, %v", ep, err)
	}

	next := newAdmin(t, cfg, joined(ringOf(t, "k2"), "k2", right)) // a key is being replaced
	mustCreate(t, next, sample("other"))
	if _, err := newAdmin(t, cfg, right).RotateSecret(t.Context(), operator, "shop", DefaultOverlap); err != nil {
		t.Errorf("the old ring, which still opens what it sealed: %v", err)
	}
}

// joined is a ring of the first key of one ring before all of another.
func joined(a *KeyRing, first string, b *KeyRing) *KeyRing {
	r := &KeyRing{first: first, keys: make(map[string]cipher.AEAD)}
	for id, key := range b.keys {
		r.keys[id] = key
	}
	r.keys[first] = a.keys[first]
	return r
}
