package signer_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
)

const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretB = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	msgID   = "msg_abcdefghijklmnopqrstuvwxyz"
)

var body = []byte(`{"type":"payment.captured","amount":1200}`)

func mustNew(t testing.TB, spec schemas.Signing, keys ...signer.Key) *signer.Signer {
	t.Helper()
	s, err := signer.New(spec, keys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustSign(t testing.TB, s *signer.Signer, at time.Time, body []byte) http.Header {
	t.Helper()
	h := http.Header{}
	if err := s.Sign(h, msgID, at, body); err != nil {
		t.Fatal(err)
	}
	return h
}

func schemesOf(list ...schemas.Scheme) schemas.Signing { return schemas.Signing{Schemes: list} }

func hexMAC(secret string, parts ...string) string {
	m := hmac.New(sha256.New, []byte(secret))
	for _, p := range parts {
		m.Write([]byte(p))
	}
	return hex.EncodeToString(m.Sum(nil))
}

func TestStandardMatchesThePublishedVector(t *testing.T) {
	// The example of the Standard Webhooks specification and of Svix's manual.
	s := mustNew(t, schemas.Signing{}, signer.Key{Secret: secretA})
	h := http.Header{}
	if err := s.Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)); err != nil {
		t.Fatal(err)
	}
	if got, want := h.Get("webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
	if h.Get("webhook-id") != "msg_p5jXN8AQM9LWM0D4loKWxJek" || h.Get("webhook-timestamp") != "1614265330" || len(h) != 3 {
		t.Errorf("headers %v", h)
	}
}

func TestPublicLibraryAcceptsBeforeDuringAndAfterARotation(t *testing.T) {
	now := time.Now()
	oldLib, _ := standardwebhooks.NewWebhook(secretA)
	newLib, _ := standardwebhooks.NewWebhook(secretB)
	for _, c := range []struct {
		name     string
		keys     []signer.Key
		old, new bool
	}{
		{"before", []signer.Key{{Secret: secretA}}, true, false},
		{"during", []signer.Key{{Secret: secretB}, {Secret: secretA, ExpiresAt: now.Add(time.Hour)}}, true, true},
		{"after", []signer.Key{{Secret: secretB}, {Secret: secretA, ExpiresAt: now}}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := mustSign(t, mustNew(t, schemas.Signing{}, c.keys...), now, body)
			if got := oldLib.Verify(body, h) == nil; got != c.old {
				t.Errorf("old secret accepted: %v, want %v", got, c.old)
			}
			if got := newLib.Verify(body, h) == nil; got != c.new {
				t.Errorf("new secret accepted: %v, want %v", got, c.new)
			}
			if err := newLib.Verify(append([]byte("x"), body...), h); err == nil {
				t.Error("a changed body was accepted")
			}
		})
	}
}

func TestEd25519SignsIDTimestampBody(t *testing.T) {
	private, public, err := signer.GenerateEd25519()
	if err != nil {
		t.Fatal(err)
	}
	s := mustNew(t, schemesOf(schemas.SchemeStandard, schemas.SchemeStandardEd25519), signer.Key{Secret: secretA}, signer.Key{Secret: private})
	at := time.Now()
	h := mustSign(t, s, at, body)
	sigs := strings.Split(h.Get("webhook-signature"), " ")
	if len(sigs) != 2 || !strings.HasPrefix(sigs[0], "v1,") || !strings.HasPrefix(sigs[1], "v1a,") {
		t.Fatalf("signatures %q", sigs)
	}
	pub, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(public, "whpk_"))
	sig, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(sigs[1], "v1a,"))
	if !ed25519.Verify(pub, []byte(msgID+"."+strconv.FormatInt(at.Unix(), 10)+"."+string(body)), sig) {
		t.Error("the ed25519 signature does not verify")
	}
	lib, _ := standardwebhooks.NewWebhook(secretA)
	if err := lib.Verify(body, h); err != nil {
		t.Errorf("the public library refuses v1 beside v1a: %v", err)
	}
}

func TestTextSchemesUseTheSecretAsItIsWritten(t *testing.T) {
	at := time.Unix(1700000000, 5)
	s := mustNew(t, schemas.Signing{Schemes: []schemas.Scheme{schemas.SchemeStripe}, Header: "proofledger-signature"}, signer.Key{Secret: secretA})
	h := mustSign(t, s, at, body)
	if got, want := h.Get("ProofLedger-Signature"), "t=1700000000,v1="+hexMAC(secretA, "1700000000.", string(body)); got != want || len(h) != 1 {
		t.Errorf("stripe: %v, want %s", h, want)
	}
	h = mustSign(t, mustNew(t, schemesOf(schemas.SchemeTimestampBody), signer.Key{Secret: secretA}), at, body)
	if h.Get("X-Signature") != hexMAC(secretA, "1700000000.", string(body)) || h.Get("X-Timestamp") != "1700000000" || h.Get("X-Event-Id") != msgID {
		t.Errorf("timestamp-body: %v", h)
	}
	github := schemas.Signing{Schemes: []schemas.Scheme{schemas.SchemeBody}, Header: "X-Hub-Signature-256", Prefix: "sha256="}
	h = mustSign(t, mustNew(t, github, signer.Key{Secret: "It's-a-Secret-to-Everybody"}), at, body)
	if got := h.Get("X-Hub-Signature-256"); got != "sha256="+hexMAC("It's-a-Secret-to-Everybody", string(body)) {
		t.Errorf("body: %s", got)
	}
	h = mustSign(t, mustNew(t, schemas.Signing{Schemes: []schemas.Scheme{schemas.SchemeBody}, IDHeader: "x-id"}, signer.Key{Secret: secretA}), at, body)
	if h.Get("X-Webhook-Signature") != hexMAC(secretA, string(body)) || h.Get("X-Id") != msgID {
		t.Errorf("body with an id: %v", h)
	}
}

func TestRotationModesOfSingleSignatureVerifiers(t *testing.T) {
	now := time.Now()
	rotating := []signer.Key{{Secret: secretB}, {Secret: secretA, ExpiresAt: now.Add(time.Minute)}}
	oldSig, newSig := hexMAC(secretA, string(body)), hexMAC(secretB, string(body))
	for mode, want := range map[string]struct{ during, after []string }{
		"":                            {[]string{newSig, oldSig}, []string{newSig}},
		signer.RotationBoth:           {[]string{newSig, oldSig}, []string{newSig}},
		signer.RotationOldUntilExpiry: {[]string{oldSig}, []string{newSig}},
		signer.RotationNewAtOnce:      {[]string{newSig}, []string{newSig}},
	} {
		spec := schemas.Signing{Schemes: []schemas.Scheme{schemas.SchemeBody}, Rotation: mode}
		s := mustNew(t, spec, rotating...)
		if got := mustSign(t, s, now, body)["X-Webhook-Signature"]; strings.Join(got, "|") != strings.Join(want.during, "|") {
			t.Errorf("%q during: %q", mode, got)
		}
		// The same Signer stops using the old key by itself.
		if got := mustSign(t, s, now.Add(time.Minute), body)["X-Webhook-Signature"]; strings.Join(got, "|") != strings.Join(want.after, "|") {
			t.Errorf("%q after: %q", mode, got)
		}
	}
}

func TestSeveralSchemesAtOnceKeepTheirHeaders(t *testing.T) {
	spec := schemas.Signing{Schemes: []schemas.Scheme{schemas.SchemeStripe, schemas.SchemeStandard}, Header: "ProofLedger-Signature", IDHeader: "Webhook-Id"}
	at := time.Now()
	h := mustSign(t, mustNew(t, spec, signer.Key{Secret: secretA}), at, body)
	lib, _ := standardwebhooks.NewWebhook(secretA)
	if err := lib.Verify(body, h); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(h.Get("ProofLedger-Signature"), "t=") || len(h) != 4 {
		t.Errorf("headers %v", h)
	}
	names, err := signer.HeaderNames(spec)
	if err != nil || len(names) != 5 {
		t.Errorf("names %v, %v", names, err)
	}
	svix := schemas.Signing{Header: "svix-signature", TimestampHeader: "svix-timestamp", IDHeader: "svix-id"}
	h = mustSign(t, mustNew(t, svix, signer.Key{Secret: secretA}), at, body)
	if h.Get("svix-id") != msgID || h.Get("svix-timestamp") == "" || !strings.HasPrefix(h.Get("svix-signature"), "v1,") || len(h) != 3 {
		t.Errorf("headers %v", h)
	}
}

func TestSignReplacesHeadersThatAreThere(t *testing.T) {
	h := http.Header{"Webhook-Signature": {"v1,forged", "v1,again"}, "Webhook-Id": {"other"}}
	if err := mustNew(t, schemas.Signing{}, signer.Key{Secret: secretA}).Sign(h, msgID, time.Now(), body); err != nil {
		t.Fatal(err)
	}
	if len(h["Webhook-Signature"]) != 1 || strings.Contains(h.Get("webhook-signature"), "forged") || h.Get("webhook-id") != msgID {
		t.Errorf("headers %v", h)
	}
}

func TestNothingActiveIsAnErrorAndLeavesTheHeaders(t *testing.T) {
	now := time.Now()
	s := mustNew(t, schemas.Signing{}, signer.Key{Secret: secretA, ExpiresAt: now})
	h := http.Header{}
	if err := s.Sign(h, msgID, now, body); !errors.Is(err, signer.ErrNoKey) || len(h) != 0 {
		t.Errorf("err %v, headers %v", err, h)
	}
	for _, id := range []string{"", "a.b", "a b", "a\r\nb", "é"} {
		if err := s.Sign(h, id, now, body); !errors.Is(err, signer.ErrMessageID) {
			t.Errorf("id %q: %v", id, err)
		}
	}
}

func TestNewRefusesWhatCouldNotWork(t *testing.T) {
	std, stripe, bodyS, ts := schemas.SchemeStandard, schemas.SchemeStripe, schemas.SchemeBody, schemas.SchemeTimestampBody
	private, public, _ := signer.GenerateEd25519()
	spoiled, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(private, "whsk_"))
	spoiled[40] ^= 1
	for name, c := range map[string]struct {
		spec schemas.Signing
		key  string
		want error
	}{
		"unknown scheme":                {schemesOf("hmac-md5"), secretA, signer.ErrSpec},
		"scheme twice":                  {schemesOf(std, std), secretA, signer.ErrSpec},
		"rotation":                      {schemas.Signing{Rotation: "sometimes"}, secretA, signer.ErrSpec},
		"header with a newline":         {schemas.Signing{Header: "X\r\nY"}, secretA, signer.ErrSpec},
		"header of the request":         {schemas.Signing{Header: "content-length"}, secretA, signer.ErrSpec},
		"header that makes retries":     {schemas.Signing{IDHeader: "idempotency-key"}, secretA, signer.ErrSpec},
		"one header, two values":        {schemas.Signing{Schemes: []schemas.Scheme{stripe, bodyS}, Header: "X-Sig"}, secretA, signer.ErrSpec},
		"id and signature in one":       {schemas.Signing{Schemes: []schemas.Scheme{ts}, Header: "X-A", IDHeader: "x-a"}, secretA, signer.ErrSpec},
		"prefix without body":           {schemas.Signing{Prefix: "sha256="}, secretA, signer.ErrSpec},
		"prefix with a space":           {schemas.Signing{Schemes: []schemas.Scheme{bodyS}, Prefix: "a b"}, secretA, signer.ErrSpec},
		"timestamp header of stripe":    {schemas.Signing{Schemes: []schemas.Scheme{stripe}, TimestampHeader: "X-T"}, secretA, signer.ErrSpec},
		"no prefix":                     {schemas.Signing{}, strings.TrimPrefix(secretA, "whsec_"), signer.ErrSecret},
		"not base64":                    {schemas.Signing{}, "whsec_!!!!", signer.ErrSecret},
		"too short":                     {schemas.Signing{}, "whsec_AAAA", signer.ErrSecret},
		"public key":                    {schemas.Signing{}, public, signer.ErrSecret},
		"public half of another":        {schemas.Signing{}, "whsk_" + base64.StdEncoding.EncodeToString(spoiled), signer.ErrSecret},
		"damaged secret, text scheme":   {schemesOf(stripe), "whsec_AAAA", signer.ErrSecret},
		"short text":                    {schemesOf(stripe), "hunter2", signer.ErrSecret},
		"ed25519 without private key":   {schemesOf(schemas.SchemeStandardEd25519), secretA, signer.ErrNoKey},
		"standard with ed25519 only":    {schemas.Signing{}, private, signer.ErrNoKey},
		"stripe with an ed25519 key":    {schemesOf(stripe), private, signer.ErrNoKey},
		"standard with a text's scheme": {schemesOf(std, stripe), "a-secret-without-prefix", signer.ErrNoKey},
	} {
		_, err := signer.New(c.spec, []signer.Key{{Secret: c.key}})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err != nil && len(c.key) > 12 && strings.Contains(err.Error(), c.key[7:]) {
			t.Errorf("%s: the error holds the secret: %v", name, err)
		}
	}
	if _, err := signer.New(schemas.Signing{}, nil); !errors.Is(err, signer.ErrNoKey) {
		t.Errorf("no keys: %v", err)
	}
}

func TestGeneratedSecretsParse(t *testing.T) {
	for _, n := range []int{0, 24, 64} {
		text, err := signer.GenerateSecret(n)
		if err != nil {
			t.Fatal(err)
		}
		sec, err := signer.ParseSecret(text)
		if want := max(n, 24); err != nil || sec.Kind != signer.KindHMAC || (n != 0 && len(sec.Bytes) != want) || (n == 0 && len(sec.Bytes) != 32) {
			t.Errorf("%d bytes: %v %v", n, sec, err)
		}
		again, _ := signer.GenerateSecret(n)
		if again == text {
			t.Error("the same secret twice")
		}
	}
	for _, n := range []int{-1, 23, 65} {
		if _, err := signer.GenerateSecret(n); !errors.Is(err, signer.ErrSecret) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	private, public, err := signer.GenerateEd25519()
	if err != nil {
		t.Fatal(err)
	}
	sec, err := signer.ParseSecret(private)
	if err != nil || sec.PublicKey() != public {
		t.Errorf("%v, public key %s, want %s", err, sec.PublicKey(), public)
	}
	raw, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(private, "whsk_"))
	seed, err := signer.ParseSecret("whsk_" + base64.StdEncoding.EncodeToString(raw[:32]))
	if err != nil || !bytes.Equal(seed.Private, sec.Private) {
		t.Errorf("from the seed: %v", err)
	}
}

func TestOneSignerServesManyGoroutines(t *testing.T) {
	s := mustNew(t, schemesOf(schemas.SchemeStandard, schemas.SchemeStripe), signer.Key{Secret: secretB}, signer.Key{Secret: secretA})
	lib, _ := standardwebhooks.NewWebhook(secretA)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			own := bytes.Repeat([]byte{byte('a' + g)}, 100+g)
			for range 200 {
				h := http.Header{}
				if err := s.Sign(h, msgID, time.Now(), own); err != nil {
					t.Error(err)
				}
				if err := lib.Verify(own, h); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkSign(b *testing.B) {
	payload := bytes.Repeat([]byte("x"), 1024)
	for name, keys := range map[string][]signer.Key{"one key": {{Secret: secretA}}, "two keys": {{Secret: secretB}, {Secret: secretA}}} {
		b.Run(name, func(b *testing.B) {
			s := mustNew(b, schemas.Signing{}, keys...)
			h := http.Header{}
			at := time.Now()
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Sign(h, msgID, at, payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
