package schemas

import (
	"math"
	"time"
)

// EndpointState is the state that administration has given an endpoint.
// Auto-disable is not here: it is in the endpoint's Health record.
type EndpointState string

// What administration can make of an endpoint.
const (
	StateEnabled  EndpointState = "enabled"
	StateDisabled EndpointState = "disabled"
	StateDeleted  EndpointState = "deleted"
)

// Endpoint is one record of the endpoints topic, keyed by ID: a tenant's URL with
// its secrets, limits and subscriptions. Zero values mean the default named there.
type Endpoint struct {
	ID          string        `json:"id"`
	Tenant      string        `json:"tenant,omitempty"`
	URL         string        `json:"url"`
	Description string        `json:"description,omitempty"`
	EventTypes  []string      `json:"event_types"` // exact, "prefix.*" or "*"
	State       EndpointState `json:"state"`
	Reason      string        `json:"reason,omitempty"` // why it is disabled, by whom it was said

	Signing Signing  `json:"signing,omitzero"`
	Secrets []Secret `json:"secrets"` // newest first

	MaxInFlight    int        `json:"max_in_flight,omitempty"` // default 10
	RateLimit      *RateLimit `json:"rate_limit,omitempty"`    // default none
	Timeout        Duration   `json:"timeout,omitempty"`       // of a whole attempt; default 15s, at most 60s
	Retry          Retry      `json:"retry,omitzero"`
	Headers        []Pair     `json:"headers,omitempty"`         // sent with every request
	ForwardHeaders []string   `json:"forward_headers,omitempty"` // record headers sent on
	NoCEHeaders    bool       `json:"no_ce_headers,omitempty"`   // leave out ce-id, ce-type …
	Auth           *Auth      `json:"auth,omitempty"`
	Owner          string     `json:"owner,omitempty"` // contact for notices

	ClientCertificate *ClientCertificate `json:"client_certificate,omitempty"` // presented to receivers that ask for one
	Metadata          []Pair             `json:"metadata,omitempty"`

	Version   int64     `json:"version"` // 1 at creation, +1 a change
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Pair is a name and a value, in the order in which they were given.
type Pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Secret is a signing secret, encrypted at rest.
type Secret struct {
	Sealed    string    `json:"sealed"`               // "v1.<key id>.<base64url nonce and ciphertext>"
	CreatedAt time.Time `json:"created_at"`           //
	ExpiresAt time.Time `json:"expires_at,omitzero"`  // zero: until it is rotated
	PublicKey string    `json:"public_key,omitempty"` // whpk_…, ed25519 only
}

// RateLimit is a token bucket.
type RateLimit struct {
	Rate  float64 `json:"rate"`  // requests a second
	Burst int     `json:"burst"` // default: the rate, rounded up, at least 1
}

// Size is Burst, or its default.
func (r *RateLimit) Size() int {
	if r.Burst > 0 {
		return r.Burst
	}
	return int(min(max(1, math.Ceil(r.Rate)), math.MaxInt32))
}

// Scheme names a way to sign; see package signer.
type Scheme string

// The schemes.
const (
	SchemeStandard        Scheme = "standard"         // Standard Webhooks v1
	SchemeStandardEd25519 Scheme = "standard-ed25519" // Standard Webhooks v1a
	SchemeStripe          Scheme = "stripe"           // t=…,v1=… over t.body
	SchemeTimestampBody   Scheme = "timestamp-body"   // hex over timestamp.body
	SchemeBody            Scheme = "body"             // hex over the body alone
)

// Signing says how requests to an endpoint are signed.
type Signing struct {
	Schemes         []Scheme `json:"schemes,omitempty"`          // default standard
	Header          string   `json:"header,omitempty"`           // name of the signature header, where the scheme lets it be chosen
	TimestampHeader string   `json:"timestamp_header,omitempty"` //
	IDHeader        string   `json:"id_header,omitempty"`        //
	Prefix          string   `json:"prefix,omitempty"`           // before the hex of scheme body, such as sha256=
	Rotation        string   `json:"rotation,omitempty"`         // both (default), old-until-expiry, new-at-once
}

// Retry is an endpoint's retry policy. A preset, or a schedule of its own.
type Retry struct {
	Preset        string     `json:"preset,omitempty"`         // standard (default), proofledger, fast, none
	Schedule      []Duration `json:"schedule,omitempty"`       // delays between attempts; overrides the preset's
	FinalStatuses []string   `json:"final_statuses,omitempty"` // "404", "4xx"; overrides the preset's
	MaxAge        Duration   `json:"max_age,omitempty"`        // default 96h, from milena-enqueued
}

// Auth is sent in the Authorization header. Passwords and tokens are sealed as secrets are.
type Auth struct {
	Basic  *BasicAuth `json:"basic,omitempty"`
	Bearer string     `json:"bearer,omitempty"` // sealed
}

// BasicAuth is RFC 7617 basic authentication.
type BasicAuth struct {
	User     string `json:"user"`
	Password string `json:"password"` // sealed
}

// Duration is a time.Duration that JSON writes as 10s or 2h.
type Duration time.Duration

// String writes d as time.Duration does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; errors are time.ParseDuration's.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}
