package schemas

import (
	"strconv"
	"time"
)

// NoticeKind is also the event type under which a notice is delivered.
type NoticeKind string

// The notices.
const (
	NoticeFailing   NoticeKind = "endpoint.failing"   // no success for an hour
	NoticeDisabled  NoticeKind = "endpoint.disabled"  // by auto-disable or a 410
	NoticeRecovered NoticeKind = "endpoint.recovered" // the first success after failing or disabled
)

// Notice is one record of the notices topic, keyed by ID: something an endpoint's
// owner should know.
type Notice struct {
	ID           string     `json:"id"` // NoticeID: the same however often it is written
	Kind         NoticeKind `json:"kind"`
	EndpointID   string     `json:"endpoint_id"`
	Tenant       string     `json:"tenant,omitempty"`
	URL          string     `json:"url,omitempty"`
	Owner        string     `json:"owner,omitempty"` // contact, as registered
	FailingSince time.Time  `json:"failing_since"`
	At           time.Time  `json:"at"`
	Attempts     int        `json:"attempts"` // failed ones since then
	Reason       string     `json:"reason,omitempty"`
	LastStatus   int        `json:"last_status,omitempty"`
	LastClass    ErrorClass `json:"last_class,omitempty"`
	LastError    string     `json:"last_error,omitempty"`
}

// NoticeID is deterministic, so that an owner who takes over does not tell the
// same thing twice: ntc_ and 26 base32 characters of SHA-256(endpoint, NUL, kind,
// NUL, unix ms of failingSince).
func NoticeID(endpointID string, kind NoticeKind, failingSince time.Time) string {
	return "ntc_" + hash26(endpointID, string(kind), strconv.FormatInt(failingSince.UnixMilli(), 10))
}
