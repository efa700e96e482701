package attempts

import (
	"time"

	"github.com/milena-project/milena/schemas"
)

// Filter says which attempts are wanted. Empty fields want all; those that are
// set must all hold.
type Filter struct {
	Delivery string // delivery id
	Event    string // the producer's event id
	Message  string // message id, msg_…
	Subject  string
	Endpoint string // endpoint id
	Since    time.Time
	Failed   bool // those that were not delivered
}

// Match reports whether an attempt is wanted.
func (f *Filter) Match(a *schemas.Attempt) bool {
	return is(f.Delivery, a.DeliveryID) && is(f.Event, a.EventID) && is(f.Message, a.MessageID) &&
		is(f.Subject, a.Subject) && is(f.Endpoint, a.EndpointID) &&
		(f.Since.IsZero() || !a.Started.Before(f.Since)) &&
		(!f.Failed || failed(a))
}

func is(want, have string) bool { return want == "" || want == have }

func failed(a *schemas.Attempt) bool {
	return a.Outcome == schemas.OutcomeRetry || a.Outcome == schemas.OutcomeDead
}

// endpoint is the endpoint that all wanted attempts belong to, empty if there may
// be several. A delivery id names its endpoint.
func (f *Filter) endpoint() string {
	if f.Endpoint != "" {
		return f.Endpoint
	}
	if _, endpoint, err := schemas.ParseDeliveryID(f.Delivery); err == nil {
		return endpoint
	}
	return ""
}
