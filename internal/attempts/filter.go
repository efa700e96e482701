package attempts

import (
	"bytes"
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

// sieve reports whether a batch of the log may hold a wanted attempt: it has every
// text that one has, as AppendAttempt writes it. nil: every batch may.
func (f *Filter) sieve() func(batch []byte) bool {
	var needles [][]byte
	for _, n := range []struct{ name, value string }{ // the most telling first
		{"delivery_id", f.Delivery}, {"message_id", f.Message}, {"event_id", f.Event}, {"subject", f.Subject}, {"endpoint_id", f.Endpoint},
	} {
		if n.value != "" && plain(n.value) {
			needles = append(needles, []byte(`"`+n.name+`":"`+n.value+`"`))
		}
	}
	if len(needles) == 0 {
		return nil
	}
	return func(batch []byte) bool {
		for _, n := range needles {
			if !bytes.Contains(batch, n) {
				return false
			}
		}
		return true
	}
}

// plain reports whether a text stands in JSON as it is, whoever writes it.
func plain(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c >= 0x7f, c == '"', c == '\\', c == '<', c == '>', c == '&', c == '/':
			return false
		}
	}
	return len(s) <= 256 // longer ones may have been cut
}
