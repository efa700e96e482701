package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
)

// maxSecrets bounds the secrets of an endpoint that have not expired, each of which
// signs every request.
const maxSecrets = 8

// kinds are the kinds of secrets that a signing configuration needs.
func kinds(spec schemas.Signing) (hmac, ed25519 bool) {
	if len(spec.Schemes) == 0 {
		return true, false
	}
	for _, s := range spec.Schemes {
		if s == schemas.SchemeStandardEd25519 {
			ed25519 = true
		} else {
			hmac = true
		}
	}
	return hmac, ed25519
}

// makeSecrets generates secrets, puts them before those of ep and returns them.
func (a *Admin) makeSecrets(ep *Endpoint, hmac, ed25519 bool, now time.Time) ([]NewSecret, error) {
	var made []NewSecret
	if hmac {
		secret, err := signer.GenerateSecret(0)
		if err != nil {
			return nil, err
		}
		made = append(made, NewSecret{Secret: secret})
	}
	if ed25519 {
		private, public, err := signer.GenerateEd25519()
		if err != nil {
			return nil, err
		}
		made = append(made, NewSecret{Secret: private, PublicKey: public})
	}
	sealed := make([]schemas.Secret, 0, len(made)+len(ep.Secrets))
	for _, m := range made {
		text, err := a.ring.Seal(ep.ID, m.Secret)
		if err != nil {
			return nil, err
		}
		sealed = append(sealed, schemas.Secret{Sealed: text, CreatedAt: now, PublicKey: m.PublicKey})
	}
	ep.Secrets = append(sealed, ep.Secrets...)
	return made, nil
}

// firstSecrets gives a new endpoint the owner's secrets, if there are any, and makes
// those that its schemes need besides.
func (a *Admin) firstSecrets(ep *Endpoint, own []string, now time.Time) ([]NewSecret, error) {
	if len(own) > maxSecrets {
		return nil, &ValidationError{Field: "secrets", Value: fmt.Sprint(len(own)), Remedy: fmt.Sprintf("give at most %d", maxSecrets)}
	}
	if len(own) > 0 {
		keys := make([]signer.Key, len(own))
		for i, s := range own {
			keys[i].Secret = s
			public := ""
			if parsed, err := signer.ParseSecret(s); err == nil {
				public = parsed.PublicKey()
			}
			sealed, err := a.ring.Seal(ep.ID, s)
			if err != nil {
				return nil, err
			}
			ep.Secrets = append(ep.Secrets, schemas.Secret{Sealed: sealed, CreatedAt: now, PublicKey: public})
		}
		if _, err := signer.New(ep.Signing, keys); err != nil && !errors.Is(err, signer.ErrNoKey) {
			return nil, &ValidationError{Field: "secrets", Value: "(hidden)", Remedy: err.Error()}
		}
	}
	return a.missingSecrets(ep, now)
}

// missingSecrets makes the secrets of the kinds that ep needs and has none of.
func (a *Admin) missingSecrets(ep *Endpoint, now time.Time) ([]NewSecret, error) {
	hmac, ed25519 := kinds(ep.Signing)
	for _, s := range ep.Secrets {
		if expired(s, now) {
			continue
		}
		if s.PublicKey != "" {
			ed25519 = false
		} else {
			hmac = false
		}
	}
	return a.makeSecrets(ep, hmac, ed25519, now)
}

func expired(s schemas.Secret, now time.Time) bool {
	return !s.ExpiresAt.IsZero() && !s.ExpiresAt.After(now)
}

// RotateSecret makes new secrets for the schemes of an endpoint. The old ones go on
// signing beside them for overlap (DefaultOverlap is the usual one; 0: they end now),
// or until they would have expired anyway.
func (a *Admin) RotateSecret(ctx context.Context, by Actor, id string, overlap time.Duration) (Result, error) {
	var res Result
	if overlap < 0 || overlap > 365*24*time.Hour {
		return res, &ValidationError{Field: "overlap", Value: overlap.String(), Remedy: "give 0 to 8760h"}
	}
	ep, err := a.apply(ctx, id, change{by: by, action: ActionRotate, edit: func(ep *Endpoint, now time.Time) (err error) {
		end := now.Add(overlap)
		kept := ep.Secrets[:0]
		for _, s := range ep.Secrets {
			if s.ExpiresAt.IsZero() || s.ExpiresAt.After(end) {
				s.ExpiresAt = end
			}
			if !expired(s, now) {
				kept = append(kept, s)
			}
		}
		ep.Secrets = kept
		hmac, ed25519 := kinds(ep.Signing)
		if res.Secrets, err = a.makeSecrets(ep, hmac, ed25519, now); err != nil {
			return err
		}
		if n := len(ep.Secrets); n > maxSecrets {
			return &ValidationError{Field: "secrets", Value: fmt.Sprint(n), Remedy: fmt.Sprintf(
				"at most %d may sign at the same time; wait until an old one expires, or rotate with a shorter overlap", maxSecrets)}
		}
		return nil
	}})
	if err != nil {
		return Result{}, err
	}
	res.Endpoint = ep
	return res, nil
}

// rekeyBatch bounds the endpoints of one transaction of a Rekey.
const rekeyBatch = 100

// Rekey seals everything that another key has sealed with the first key of the ring
// and drops expired secrets, and returns how many endpoints were rewritten. After it
// the other keys can be taken away, once the processes have the new one. It changes
// no configuration, so versions stay as they are: a newer one would end an automatic
// disabling. Interrupted, it is simply run again. Records that are unreadable are
// passed over, and are its error (*UnreadableError) when all others are done.
func (a *Admin) Rekey(ctx context.Context, by Actor) (int, error) {
	total := 0
	for {
		n, bad := 0, []error(nil)
		err := a.table.Swap(ctx, func(rows Rows) ([]Change, error) {
			n, bad = 0, nil
			var changes []Change
			for row := range rows.All() {
				if n == rekeyBatch {
					break
				}
				before, err := row.Endpoint()
				if err != nil {
					bad = append(bad, err)
					continue
				}
				c, err := a.rekey(by, before)
				if err != nil {
					return nil, err
				}
				if c != nil {
					n++
					changes = append(changes, c...)
				}
			}
			return changes, nil
		})
		if err != nil {
			return total, err
		}
		if n == 0 {
			return total, errors.Join(bad...)
		}
		total += n
	}
}

// rekey returns the records that an endpoint needs, or none.
func (a *Admin) rekey(by Actor, before *Endpoint) ([]Change, error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	after, err := clone(before)
	if err != nil {
		return nil, err
	}
	after.Secrets = slices.DeleteFunc(after.Secrets, func(s schemas.Secret) bool { return expired(s, now) })
	changed := len(after.Secrets) != len(before.Secrets)
	reseal := func(text *string) error {
		id, _, err := splitSealed(*text)
		if *text == "" || err == nil && id == a.ring.SealingKey() {
			return nil
		}
		plain, err := a.ring.Open(after.ID, *text)
		if err != nil {
			return fmt.Errorf("endpoint %s: %w", after.ID, err)
		}
		changed = true
		*text, err = a.ring.Seal(after.ID, plain)
		return err
	}
	for i := range after.Secrets {
		if err := reseal(&after.Secrets[i].Sealed); err != nil {
			return nil, err
		}
	}
	if after.ClientCertificate != nil {
		if err := reseal(&after.ClientCertificate.Key); err != nil {
			return nil, err
		}
	}
	if after.Auth != nil {
		if err := reseal(&after.Auth.Bearer); err != nil {
			return nil, err
		}
		if after.Auth.Basic != nil {
			if err := reseal(&after.Auth.Basic.Password); err != nil {
				return nil, err
			}
		}
	}
	if !changed {
		return nil, nil
	}
	return a.records(change{by: by, action: ActionRekey}, now, before, after)
}

// clone copies an endpoint so that nothing is shared.
func clone(ep *Endpoint) (*Endpoint, error) {
	b, err := json.Marshal(ep)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", ep.ID, err)
	}
	c := new(Endpoint)
	return c, json.Unmarshal(b, c)
}
