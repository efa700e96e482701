package verify_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
	"github.com/milena-project/milena/signer/verify"
)

const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretB = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	msgID   = "msg_abcdefghijklmnopqrstuvwxyz"
)

var (
	now                = time.Unix(1_800_000_000, 0)
	private, public, _ = signer.GenerateEd25519()
	schemesAll         = []verify.Scheme{verify.Standard, verify.StandardEd25519, verify.Stripe, verify.TimestampBody, verify.Body}
)

func signed(t testing.TB, spec schemas.Signing, at time.Time, body []byte, keys ...signer.Key) http.Header {
	t.Helper()
	s, err := signer.New(spec, keys)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	if err := s.Sign(h, msgID, at, body); err != nil {
		t.Fatal(err)
	}
	return h
}

func verifier(t testing.TB, c verify.Config) *verify.Verifier {
	t.Helper()
	c.Now = func() time.Time { return now }
	v, err := verify.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// secretsOf returns the sender's and the receiver's half for a scheme.
func secretsOf(s verify.Scheme) (sender, receiver string) {
	if s == verify.StandardEd25519 {
		return private, public
	}
	return secretA, secretA
}

func TestEveryRequestOfTheSignerVerifiesAndNoChangedOneDoes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		scheme := rapid.SampledFrom(schemesAll).Draw(rt, "scheme")
		body := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(rt, "body")
		sender, receiver := secretsOf(scheme)
		spec := schemas.Signing{Schemes: []schemas.Scheme{schemas.Scheme(scheme)}}
		c := verify.Config{Secrets: []string{receiver}, Scheme: scheme}
		if scheme == verify.Body && rapid.Bool().Draw(rt, "github") {
			spec.Header, spec.Prefix = "X-Hub-Signature-256", "sha256="
			c.Header, c.Prefix = spec.Header, spec.Prefix
		}
		if rapid.Bool().Draw(rt, "id header") {
			spec.IDHeader, c.IDHeader = "X-Own-Id", "X-Own-Id"
		}
		age := time.Duration(rapid.IntRange(-300, 300).Draw(rt, "age")) * time.Second
		h := signed(t, spec, now.Add(-age), body, signer.Key{Secret: sender})
		v := verifier(t, c)
		m, err := v.Verify(h, body)
		if err != nil {
			rt.Fatalf("%s: %v", scheme, err)
		}
		if c.IDHeader != "" && m.ID != msgID {
			rt.Fatalf("id %q", m.ID)
		}
		changed := append(append([]byte{}, body...), 'x')
		if len(body) > 0 && rapid.Bool().Draw(rt, "flip") {
			changed = append([]byte{}, body...)
			changed[rapid.IntRange(0, len(body)-1).Draw(rt, "at")] ^= 1
		}
		if _, err := v.Verify(h, changed); !errors.Is(err, verify.ErrNoMatch) {
			rt.Fatalf("%s: a changed body: %v", scheme, err)
		}
	})
}

func TestRotationIsAcceptedBeforeDuringAndAfter(t *testing.T) {
	body := []byte("{}")
	for _, scheme := range []verify.Scheme{verify.Standard, verify.Stripe, verify.TimestampBody, verify.Body} {
		spec := schemas.Signing{Schemes: []schemas.Scheme{schemas.Scheme(scheme)}}
		during := signed(t, spec, now, body, signer.Key{Secret: secretB}, signer.Key{Secret: secretA, ExpiresAt: now.Add(time.Hour)})
		for _, s := range []string{secretA, secretB} {
			if _, err := verifier(t, verify.Config{Secrets: []string{s}, Scheme: scheme}).Verify(during, body); err != nil {
				t.Errorf("%s, receiver has one of two: %v", scheme, err)
			}
		}
		after := signed(t, spec, now, body, signer.Key{Secret: secretB}, signer.Key{Secret: secretA, ExpiresAt: now})
		if _, err := verifier(t, verify.Config{Secrets: []string{secretA}, Scheme: scheme}).Verify(after, body); !errors.Is(err, verify.ErrNoMatch) {
			t.Errorf("%s, the old secret after its time: %v", scheme, err)
		}
		if _, err := verifier(t, verify.Config{Secrets: []string{secretA, secretB}, Scheme: scheme}).Verify(after, body); err != nil {
			t.Errorf("%s, receiver has both: %v", scheme, err)
		}
	}
}

func TestProxiesThatJoinHeaderLinesDoNoHarm(t *testing.T) {
	body := []byte("{}")
	h := signed(t, schemas.Signing{Schemes: []schemas.Scheme{schemas.SchemeBody}}, now, body, signer.Key{Secret: secretB}, signer.Key{Secret: secretA})
	h.Set("X-Webhook-Signature", strings.Join(h.Values("X-Webhook-Signature"), ", "))
	for _, s := range []string{secretA, secretB} {
		if _, err := verifier(t, verify.Config{Secrets: []string{s}, Scheme: verify.Body}).Verify(h, body); err != nil {
			t.Error(err)
		}
	}
}

func TestRefusalsSayWhy(t *testing.T) {
	body := []byte(`{"a":1}`)
	std := func(f func(h http.Header)) http.Header {
		h := signed(t, schemas.Signing{}, now, body, signer.Key{Secret: secretA})
		f(h)
		return h
	}
	stripe := func(value string) http.Header { return http.Header{"Stripe-Signature": {value}} }
	for name, c := range map[string]struct {
		scheme verify.Scheme
		h      http.Header
		want   error
		header string
	}{
		"no id":              {verify.Standard, std(func(h http.Header) { h.Del("webhook-id") }), verify.ErrMissingHeader, "webhook-id"},
		"no timestamp":       {verify.Standard, std(func(h http.Header) { h.Del("webhook-timestamp") }), verify.ErrMissingHeader, "webhook-timestamp"},
		"no signature":       {verify.Standard, std(func(h http.Header) { h.Del("webhook-signature") }), verify.ErrMissingHeader, "webhook-signature"},
		"blank signature":    {verify.Standard, std(func(h http.Header) { h.Set("webhook-signature", "  ") }), verify.ErrMissingHeader, "webhook-signature"},
		"stale":              {verify.Standard, signed(t, schemas.Signing{}, now.Add(-301*time.Second), body, signer.Key{Secret: secretA}), verify.ErrStale, "webhook-timestamp"},
		"future":             {verify.Standard, signed(t, schemas.Signing{}, now.Add(301*time.Second), body, signer.Key{Secret: secretA}), verify.ErrFuture, "webhook-timestamp"},
		"timestamp of words": {verify.Standard, std(func(h http.Header) { h.Set("webhook-timestamp", "noon") }), verify.ErrMalformed, "webhook-timestamp"},
		"timestamp signed":   {verify.Standard, std(func(h http.Header) { h.Set("webhook-timestamp", "+1800000000") }), verify.ErrMalformed, "webhook-timestamp"},
		"timestamp negative": {verify.Standard, std(func(h http.Header) { h.Set("webhook-timestamp", "-5") }), verify.ErrMalformed, "webhook-timestamp"},
		"timestamp in ms":    {verify.Standard, std(func(h http.Header) { h.Set("webhook-timestamp", "1800000000000") }), verify.ErrMalformed, "webhook-timestamp"},
		"other id":           {verify.Standard, std(func(h http.Header) { h.Set("webhook-id", "msg_other") }), verify.ErrNoMatch, ""},
		"later timestamp":    {verify.Standard, std(func(h http.Header) { h.Set("webhook-timestamp", "1800000001") }), verify.ErrNoMatch, ""},
		"other version":      {verify.Standard, std(func(h http.Header) { h.Set("webhook-signature", "v2,AAAA") }), verify.ErrMalformed, "webhook-signature"},
		"not base64":         {verify.Standard, std(func(h http.Header) { h.Set("webhook-signature", "v1,!!!") }), verify.ErrMalformed, "webhook-signature"},
		"empty version":      {verify.Standard, std(func(h http.Header) { h.Set("webhook-signature", "v1,") }), verify.ErrMalformed, "webhook-signature"},
		"too many":           {verify.Standard, std(func(h http.Header) { h.Set("webhook-signature", strings.Repeat("v1,AAAA ", 33)) }), verify.ErrMalformed, "webhook-signature"},
		"v1 as v1a":          {verify.StandardEd25519, std(func(http.Header) {}), verify.ErrMalformed, "webhook-signature"},
		"stripe, no t":       {verify.Stripe, stripe("v1=00"), verify.ErrMalformed, "Stripe-Signature"},
		"stripe, no v1":      {verify.Stripe, stripe("t=1800000000"), verify.ErrMalformed, "Stripe-Signature"},
		"stripe, two t":      {verify.Stripe, stripe("t=1800000000,t=1,v1=00"), verify.ErrMalformed, "Stripe-Signature"},
		"stripe, words":      {verify.Stripe, stripe("hello"), verify.ErrMalformed, "Stripe-Signature"},
		"stripe, stale":      {verify.Stripe, stripe("t=1,v1=00"), verify.ErrStale, "Stripe-Signature"},
		"stripe, wrong":      {verify.Stripe, stripe("t=1800000000,v1=00"), verify.ErrNoMatch, ""},
		"body, no prefix":    {verify.Body, http.Header{"X-Webhook-Signature": {"zz"}}, verify.ErrMalformed, "X-Webhook-Signature"},
	} {
		_, receiver := secretsOf(c.scheme)
		_, err := verifier(t, verify.Config{Secrets: []string{receiver}, Scheme: c.scheme}).Verify(c.h, body)
		var e *verify.Error
		if !errors.Is(err, c.want) || !errors.As(err, &e) || e.Header != c.header {
			t.Errorf("%s: %v, want %v about %q", name, err, c.want, c.header)
		}
	}
}

func TestAnUnknownVersionBesideAKnownOneIsPassedOver(t *testing.T) {
	body := []byte("{}")
	h := signed(t, schemas.Signing{}, now, body, signer.Key{Secret: secretA})
	h.Set("webhook-signature", "v9,zzz v1a,AAAA garbage "+h.Get("webhook-signature"))
	if _, err := verifier(t, verify.Config{Secrets: []string{secretA}}).Verify(h, body); err != nil {
		t.Error(err)
	}
	h = signed(t, schemas.Signing{Schemes: []schemas.Scheme{schemas.SchemeStripe}}, now, body, signer.Key{Secret: secretA})
	h.Set("Stripe-Signature", "v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39,"+h.Get("Stripe-Signature"))
	if _, err := verifier(t, verify.Config{Secrets: []string{secretA}, Scheme: verify.Stripe}).Verify(h, body); err != nil {
		t.Error(err)
	}
}

func TestNewRefusesWhatCouldNotWork(t *testing.T) {
	for name, c := range map[string]verify.Config{
		"no secrets":              {},
		"unknown scheme":          {Secrets: []string{secretA}, Scheme: "rot13"},
		"not base64":              {Secrets: []string{"whsec_?"}},
		"private key":             {Secrets: []string{private}, Scheme: verify.StandardEd25519},
		"short public key":        {Secrets: []string{"whpk_AAAA"}, Scheme: verify.StandardEd25519},
		"empty text":              {Secrets: []string{""}, Scheme: verify.Stripe},
		"prefix for stripe":       {Secrets: []string{secretA}, Scheme: verify.Stripe, Prefix: "x"},
		"timestamp for body":      {Secrets: []string{secretA}, Scheme: verify.Body, TimestampHeader: "X-T"},
		"negative tolerance":      {Secrets: []string{secretA}, Tolerance: -1},
		"more secrets than usual": {Secrets: make([]string, 17)},
	} {
		if _, err := verify.New(c); !errors.Is(err, verify.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add("msg_1", "1800000000", "v1,AAAA v1a,BBBB", []byte("{}"))
	f.Add("", "t=1800000000,v1=00", "t=1800000000,v1=00", []byte{})
	f.Add("x", "9223372036854775807", "sha256=00", []byte("x"))
	var all []*verify.Verifier
	for _, s := range schemesAll {
		_, receiver := secretsOf(s)
		all = append(all, verifier(f, verify.Config{Secrets: []string{receiver}, Scheme: s}))
	}
	f.Fuzz(func(t *testing.T, id, stamp, sig string, body []byte) {
		h := http.Header{}
		for _, n := range []string{"webhook-id", "X-Event-Id"} {
			h.Set(n, id)
		}
		for _, n := range []string{"webhook-timestamp", "X-Timestamp"} {
			h.Set(n, stamp)
		}
		for _, n := range []string{"webhook-signature", "Stripe-Signature", "X-Signature", "X-Webhook-Signature"} {
			h.Set(n, sig)
		}
		for _, v := range all {
			m, err := v.Verify(h, body)
			var e *verify.Error
			if err == nil {
				t.Fatalf("an invented signature was accepted: %+v", m)
			}
			if !errors.As(err, &e) {
				t.Fatalf("no *Error: %v", err)
			}
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("{}"), int64(1_800_000_000), uint8(0), []byte("0123456789abcdef01234567"))
	f.Add([]byte{0, 0xff}, int64(0), uint8(4), []byte("abcdefghijklmnopqrstuvwxyz0123456789"))
	f.Fuzz(func(t *testing.T, body []byte, sec int64, pick uint8, raw []byte) {
		if sec < 0 || sec > 1<<40 || len(raw) < signer.MinSecretBytes || len(raw) > signer.MaxSecretBytes {
			t.Skip()
		}
		scheme := schemesAll[int(pick)%len(schemesAll)]
		sender, receiver := secretsOf(scheme)
		if scheme != verify.StandardEd25519 {
			sender = "whsec_" + base64.StdEncoding.EncodeToString(raw)
			receiver = sender
		}
		h := signed(t, schemas.Signing{Schemes: []schemas.Scheme{schemas.Scheme(scheme)}}, time.Unix(sec, 0), body, signer.Key{Secret: sender})
		v, err := verify.New(verify.Config{Secrets: []string{secretOther(scheme), receiver}, Scheme: scheme, Now: func() time.Time { return time.Unix(sec, 0) }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := v.Verify(h, body); err != nil {
			t.Fatal(err)
		}
	})
}

func secretOther(s verify.Scheme) string {
	if s == verify.StandardEd25519 {
		return "whpk_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	}
	return secretB
}
