package signer

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/milena-project/milena/schemas"
)

// Rotation modes (schemas.Signing.Rotation), for the time in which an old secret
// and a new one are both active.
const (
	RotationBoth           = "both"             // every active key signs; the default
	RotationOldUntilExpiry = "old-until-expiry" // one signature, by the oldest active key
	RotationNewAtOnce      = "new-at-once"      // one signature, by the newest key
)

// Default header names. Those of Standard Webhooks are from its specification,
// Stripe-Signature is what Stripe's libraries document.
const (
	HeaderWebhookID        = "Webhook-Id"
	HeaderWebhookTimestamp = "Webhook-Timestamp"
	HeaderWebhookSignature = "Webhook-Signature"
	HeaderStripe           = "Stripe-Signature"
	HeaderTimestamp        = "X-Timestamp"
	HeaderSignature        = "X-Signature"
	HeaderEventID          = "X-Event-Id"
	HeaderBody             = "X-Webhook-Signature"
)

// ErrSpec is wrapped by every error about a schemas.Signing.
var ErrSpec = errors.New("unusable signing configuration")

// layout is a checked schemas.Signing: which scheme writes which headers, all in
// canonical spelling. An empty name means that the header is not written.
type layout struct {
	standard, ed25519     bool
	stdID, stdTime, stdSi string // of standard and standard-ed25519
	stripe                string
	stripeID              string
	tsSig, tsTime, tsID   string
	body, bodyID, prefix  string
	rotation              string
}

// HeaderNames lists the headers that a Signer of this configuration sets, in
// canonical spelling. Errors are New's errors about the configuration, so it also
// serves to check one before there are keys.
func HeaderNames(spec schemas.Signing) ([]string, error) {
	l, err := newLayout(spec)
	if err != nil {
		return nil, err
	}
	return l.names(), nil
}

func (l *layout) names() []string {
	var out []string
	for _, n := range []string{l.stdID, l.stdTime, l.stdSi, l.stripe, l.stripeID, l.tsSig, l.tsTime, l.tsID, l.body, l.bodyID} {
		if n != "" {
			out = append(out, n)
		}
	}
	return out
}

func newLayout(spec schemas.Signing) (*layout, error) {
	l := &layout{rotation: spec.Rotation, prefix: spec.Prefix}
	switch spec.Rotation {
	case "":
		l.rotation = RotationBoth
	case RotationBoth, RotationOldUntilExpiry, RotationNewAtOnce:
	default:
		return nil, fmt.Errorf("%w: rotation %q: want %s, %s or %s", ErrSpec, spec.Rotation, RotationBoth, RotationOldUntilExpiry, RotationNewAtOnce)
	}
	has, err := schemeSet(spec.Schemes)
	if err != nil {
		return nil, err
	}
	if err := checkFields(spec, has); err != nil {
		return nil, err
	}
	l.standard, l.ed25519 = has[schemas.SchemeStandard], has[schemas.SchemeStandardEd25519]

	// Chosen names belong to the schemes that have no fixed ones. Where Standard
	// Webhooks is alone they are its own (svix-id and its like); beside others it
	// keeps the names that its public libraries look for.
	own := spec
	if l.standard || l.ed25519 {
		std := schemas.Signing{}
		if len(has) == btoi(l.standard)+btoi(l.ed25519) {
			std, own = spec, schemas.Signing{}
		}
		l.stdSi = pick(std.Header, HeaderWebhookSignature)
		l.stdTime = pick(std.TimestampHeader, HeaderWebhookTimestamp)
		l.stdID = pick(std.IDHeader, HeaderWebhookID)
	}
	if has[schemas.SchemeStripe] {
		l.stripe, l.stripeID = pick(own.Header, HeaderStripe), pick(own.IDHeader, "")
	}
	if has[schemas.SchemeTimestampBody] {
		l.tsSig, l.tsTime, l.tsID = pick(own.Header, HeaderSignature), pick(own.TimestampHeader, HeaderTimestamp), pick(own.IDHeader, HeaderEventID)
	}
	if has[schemas.SchemeBody] {
		l.body, l.bodyID = pick(own.Header, HeaderBody), pick(own.IDHeader, "")
	}
	return l, l.check()
}

func schemeSet(list []schemas.Scheme) (map[schemas.Scheme]bool, error) {
	if len(list) == 0 {
		list = []schemas.Scheme{schemas.SchemeStandard}
	}
	has := make(map[schemas.Scheme]bool, len(list))
	for _, s := range list {
		switch s {
		case schemas.SchemeStandard, schemas.SchemeStandardEd25519, schemas.SchemeStripe, schemas.SchemeTimestampBody, schemas.SchemeBody:
		default:
			return nil, fmt.Errorf("%w: unknown scheme %q: want standard, standard-ed25519, stripe, timestamp-body or body", ErrSpec, s)
		}
		if has[s] {
			return nil, fmt.Errorf("%w: scheme %q is named twice", ErrSpec, s)
		}
		has[s] = true
	}
	return has, nil
}

// checkFields refuses what would have no effect, and names that could not be sent.
func checkFields(spec schemas.Signing, has map[schemas.Scheme]bool) error {
	if spec.Prefix != "" && !has[schemas.SchemeBody] {
		return fmt.Errorf("%w: prefix %q has a meaning for scheme body only", ErrSpec, spec.Prefix)
	}
	if !visible(spec.Prefix) || strings.ContainsAny(spec.Prefix, ", ") {
		return fmt.Errorf("%w: prefix %q: want visible ASCII without spaces and commas", ErrSpec, spec.Prefix)
	}
	if spec.TimestampHeader != "" && !has[schemas.SchemeStandard] && !has[schemas.SchemeStandardEd25519] && !has[schemas.SchemeTimestampBody] {
		return fmt.Errorf("%w: timestamp_header %q: none of the schemes has a timestamp header", ErrSpec, spec.TimestampHeader)
	}
	for _, f := range [...]struct{ field, name string }{{"header", spec.Header}, {"timestamp_header", spec.TimestampHeader}, {"id_header", spec.IDHeader}} {
		if f.name == "" {
			continue
		}
		if !token(f.name) {
			return fmt.Errorf("%w: %s %q is not a header name", ErrSpec, f.field, f.name)
		}
		if slices.Contains(reserved, http.CanonicalHeaderKey(f.name)) {
			return fmt.Errorf("%w: %s %q is a header that the request needs for itself", ErrSpec, f.field, f.name)
		}
	}
	return nil
}

// reserved are the headers that net/http or the dispatcher write. Idempotency-Key
// and X-Idempotency-Key would make net/http send a POST again by itself.
var reserved = []string{"Host", "Content-Length", "Content-Type", "Content-Encoding", "Transfer-Encoding", "Connection", "Keep-Alive",
	"Proxy-Connection", "Te", "Trailer", "Upgrade", "Expect", "Authorization", "Proxy-Authorization", "User-Agent", "Accept-Encoding",
	"Idempotency-Key", "X-Idempotency-Key", "Milena-Delivery-Id", "Milena-Attempt", "Traceparent", "Tracestate", "Cookie"}

// check refuses two different values under one name. The id is the same value
// everywhere and may share its header.
func (l *layout) check() error {
	seen := map[string]bool{}
	ids := map[string]bool{}
	for _, n := range []string{l.stdID, l.stripeID, l.tsID, l.bodyID} {
		ids[n] = n != ""
	}
	for _, n := range []string{l.stdTime, l.stdSi, l.stripe, l.tsSig, l.tsTime, l.body} {
		if n == "" {
			continue
		}
		if seen[n] || ids[n] {
			return fmt.Errorf("%w: header %q would be written twice; choose other names, or endpoints of their own for the schemes", ErrSpec, n)
		}
		seen[n] = true
	}
	return nil
}

func pick(chosen, fallback string) string {
	if chosen == "" {
		return fallback
	}
	return http.CanonicalHeaderKey(chosen)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func visible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// token reports whether s is a field name of RFC 9110, section 5.1.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0 {
			continue
		}
		return false
	}
	return s != ""
}
