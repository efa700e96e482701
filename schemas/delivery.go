package schemas

import (
	"bytes"
	"slices"
	"time"
)

// Event is what a producer published.
type Event struct {
	ID          string
	Source      string
	Type        string
	Time        string // RFC 3339 as the producer wrote it; empty if it did not
	Subject     string
	Tenant      string
	SpecVersion string
	ContentType string // of the payload as it is sent; empty: application/json
	Structured  bool   // CloudEvents structured mode: the attributes stand in the payload
}

// Delivery is one event for one endpoint, with what has happened to it in this
// life. The same struct is read from deliveries, hold, the tiers and dlq; Payload
// is the producer's bytes and is never changed.
type Delivery struct {
	EndpointID string
	Event      Event
	Payload    []byte

	Origin       Origin
	Attempt      int       // attempts that came to an outcome
	Generation   int       // deaths before this life
	Enqueued     time.Time // of the first deliveries record of this life, ms; zero: unknown
	FirstAttempt time.Time // zero: none yet
	NotBefore    time.Time // zero: now
	HopUntil     time.Time
	Released     time.Time // zero: not released by the releaser in its last hop
	Forwards     int
	Claim        int64 // hold only: claim of the owner that appended it; whoever writes it elsewhere sets 0

	LastStatus int
	ErrorClass ErrorClass
	Error      string

	Run      string
	ResendOf string

	Traceparent string
	Tracestate  string
	Trace       string // W3C traceparent of the last span that Milena made for it; empty: none

	Extra []Header // the producer's other headers, in order
}

// ID is the delivery id: where the first record stood, and for whom.
func (d *Delivery) ID() string { return d.Origin.String() + "." + d.EndpointID }

// MessageID is the webhook-id that receivers see.
func (d *Delivery) MessageID() string { return MessageID(d.Event.Source, d.Event.ID) }

// Own copies what the delivery shares with the record that it was read from, so
// that keeping it does not keep the whole fetch.
func (d *Delivery) Own() {
	d.Payload = bytes.Clone(d.Payload)
	d.Extra = slices.Clone(d.Extra)
	for i := range d.Extra {
		d.Extra[i].Value = bytes.Clone(d.Extra[i].Value)
	}
}
