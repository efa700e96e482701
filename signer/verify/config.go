package verify

import (
	"crypto/ed25519"
	"encoding/base64"
	"strings"
	"time"
)

// Scheme names a way to sign, as the sender's configuration does.
type Scheme string

const (
	Standard        Scheme = "standard"         // Standard Webhooks v1; the default
	StandardEd25519 Scheme = "standard-ed25519" // Standard Webhooks v1a
	Stripe          Scheme = "stripe"           // t=…,v1=… over timestamp.body
	TimestampBody   Scheme = "timestamp-body"   // hex over timestamp.body
	Body            Scheme = "body"             // hex over the body alone
)

// Tolerance is how far a request's timestamp may be from now, in both directions
// (Standard Webhooks and Stripe use the same five minutes).
const Tolerance = 5 * time.Minute

// MaxSecrets and MaxSignatures bound the work of one request.
const (
	MaxSecrets    = 16
	MaxSignatures = 32
)

// Config says what to accept.
type Config struct {
	// Secrets are all secrets that are valid now: during a rotation the old one and
	// the new one. whsec_… for all schemes but StandardEd25519, which takes public
	// keys whpk_…; stripe, timestamp-body and body take any other text too.
	Secrets []string
	Scheme  Scheme // default Standard

	// Names of headers; the defaults are the scheme's: webhook-signature,
	// webhook-timestamp and webhook-id; Stripe-Signature; X-Signature, X-Timestamp
	// and X-Event-Id; X-Webhook-Signature. Stripe and Body have no id header unless
	// one is named here.
	Header, TimestampHeader, IDHeader string
	Prefix                            string // before the hex of scheme Body, such as sha256=

	Tolerance time.Duration    // default Tolerance
	Now       func() time.Time // default time.Now
}

// Verifier checks requests. It is immutable and safe for concurrent use.
type Verifier struct {
	c      Config
	hmac   [][]byte
	public []ed25519.PublicKey
}

// New makes a Verifier. Errors wrap ErrConfig and never hold a secret.
func New(c Config) (*Verifier, error) {
	if c.Scheme == "" {
		c.Scheme = Standard
	}
	defaults := map[Scheme][3]string{
		Standard:        {"webhook-signature", "webhook-timestamp", "webhook-id"},
		StandardEd25519: {"webhook-signature", "webhook-timestamp", "webhook-id"},
		Stripe:          {"Stripe-Signature", "", ""},
		TimestampBody:   {"X-Signature", "X-Timestamp", "X-Event-Id"},
		Body:            {"X-Webhook-Signature", "", ""},
	}
	names, known := defaults[c.Scheme]
	switch {
	case !known:
		return nil, misconfigured("unknown scheme %q", c.Scheme)
	case names[1] == "" && c.TimestampHeader != "":
		return nil, misconfigured("scheme %s has no timestamp header", c.Scheme)
	case c.Prefix != "" && c.Scheme != Body:
		return nil, misconfigured("scheme %s has no prefix", c.Scheme)
	case len(c.Secrets) == 0:
		return nil, misconfigured("no secret is given")
	case len(c.Secrets) > MaxSecrets:
		return nil, misconfigured("%d secrets are given, at most %d are allowed", len(c.Secrets), MaxSecrets)
	case c.Tolerance < 0:
		return nil, misconfigured("tolerance %s is negative", c.Tolerance)
	}
	for i, name := range []*string{&c.Header, &c.TimestampHeader, &c.IDHeader} {
		if *name == "" {
			*name = names[i]
		}
	}
	if c.Tolerance == 0 {
		c.Tolerance = Tolerance
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	v := &Verifier{c: c}
	for i, s := range c.Secrets {
		if err := v.add(s); err != nil {
			return nil, misconfigured("secret %d: %v", i+1, err)
		}
	}
	v.c.Secrets = nil // a Verifier that is printed shows none
	return v, nil
}

type problem string

func (p problem) Error() string { return string(p) }

func (v *Verifier) add(secret string) error {
	if secret == "" {
		return problem("it is empty; is the variable set that it comes from?")
	}
	switch v.c.Scheme {
	case StandardEd25519:
		text, ok := strings.CutPrefix(secret, "whpk_")
		if !ok {
			return problem("scheme standard-ed25519 wants the public key, whpk_…")
		}
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(raw) != ed25519.PublicKeySize {
			return problem("whpk_ must be followed by the base64 of 32 bytes")
		}
		v.public = append(v.public, raw)
	case Standard:
		// Like the public libraries, the prefix may be left out.
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(raw) == 0 {
			return problem("whsec_ must be followed by base64")
		}
		v.hmac = append(v.hmac, raw)
	default:
		if secret == "" {
			return problem("it is empty")
		}
		v.hmac = append(v.hmac, []byte(secret)) // the text itself, whsec_ included
	}
	return nil
}
