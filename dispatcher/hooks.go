package dispatcher

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/milena-project/milena/schemas"
)

// The one-method interfaces below are all that a Dispatcher needs of the world.
// Package internal/app wires them to Kafka; tests wire them to memory.

// Source is the assignment of a partition that a record came from.
type Source interface {
	// Done says that the next durable step of the record at offset is acknowledged.
	Done(offset int64)
	// GiveUp says that this assignment will not settle the record: it was never
	// begun, or interrupted, and the partition or the process goes.
	GiveUp(offset int64)
	// DoneHere is Done for a record that was put on hold. It counts for this
	// assignment only: after the next owner's claim what was appended here may not
	// count any more, so it must never be kept as a fact.
	DoneHere(offset int64)
	// Owned reports whether a new POST may begin: the partition is still assigned
	// and the group's coordinator has answered lately.
	Owned() bool
	// FrozenSince reports whether this process stood still at some time after start,
	// so that a failure since then is its own and not the endpoint's.
	FrozenSince(start time.Time) bool
}

// Transport makes one HTTP request: never a redirect, no compression, and no second
// POST once a byte of the first may have left.
type Transport interface {
	// Send sends. connected is set to the time (unix ns) at which the request had a
	// connection, and stays 0 when there never was one.
	Send(req *http.Request, connected *atomic.Int64) (*http.Response, error)
}

// Endpoints answers what the registry knows now.
type Endpoints interface {
	// Endpoint returns the endpoint ready for use, or nil where the registry has
	// none. known is what the caller was given last; it comes back while it is current.
	Endpoint(id string, known *Endpoint) *Endpoint
	// Barrier returns when the view holds all that was committed before the call. It
	// gives up by itself in a few seconds.
	Barrier(ctx context.Context) error
}

// Signer adds the signature headers of one endpoint.
type Signer interface {
	Sign(h http.Header, messageID string, at time.Time, body []byte) error
}

// Schedule is an endpoint's retry policy.
type Schedule interface {
	// Final reports whether a status ends a delivery at once.
	Final(status int) bool
	// Next plans the try after d.Attempt failed ones. A reason other than the
	// empty one says why there is none. A zero d.Enqueued is of no known age, and
	// nothing dies of it.
	Next(d *schemas.Delivery, now time.Time, retryAfter time.Duration) (due time.Time, dead schemas.Reason)
}

// Placement knows the partition in which an endpoint's records belong.
type Placement interface {
	PartitionOf(endpointID string) int32
}

// The effects. Each calls acked once the write is durable, from any goroutine,
// and never gives up before; none blocks.
type (
	// Parker writes a delivery to a tier; d.NotBefore is set.
	Parker interface {
		Park(d *schemas.Delivery, acked func())
	}
	// DeadLetters writes a delivery to the dead-letter topic.
	DeadLetters interface {
		Bury(l *schemas.Letter, acked func())
	}
	// AttemptLog appends to the delivery log. The record is used again when
	// LogAttempt has returned.
	AttemptLog interface {
		LogAttempt(a *schemas.Attempt, acked func())
	}
	// Notifier tells an endpoint's owner something.
	Notifier interface {
		Notify(n *schemas.Notice, acked func())
	}
	// Forwarder writes a misrouted delivery to the partition of its endpoint.
	Forwarder interface {
		Forward(d *schemas.Delivery, acked func())
	}
)

// Span follows one POST through somebody else's tracing.
type Span struct {
	// Traceparent and Tracestate are the W3C trace context that the request carries
	// in place of the producer's.
	Traceparent, Tracestate string
	// End is called once, when the answer is in or has failed to come: the status, 0
	// for none, and what went wrong, empty for nothing. interrupted: the attempt does
	// not count.
	End func(status int, class schemas.ErrorClass, interrupted bool)
}

// BreakerChange is a transition of an endpoint's breaker.
type BreakerChange struct {
	EndpointID string
	From, To   BreakerState
	Until      time.Time // while it is open: when the next attempt is made
}

// Hooks observe; each may be nil and none may block.
type Hooks struct {
	// Attempting sees every attempt before its request is made and returns the span
	// that follows it. d is the hook's until it returns: it may set d.Trace.
	Attempting func(d *schemas.Delivery, ep *Endpoint) *Span
	// Attempted sees every attempt record, after its outcome and before its acks. The
	// record is used again later: it must not be kept.
	Attempted func(a *schemas.Attempt)
	// Delivered sees how long after its first record a delivery had its 2xx; first says
	// that it was its first attempt.
	Delivered func(delay time.Duration, first bool)
	// Duplicate counts copies that were dropped before they were POSTed.
	Duplicate func()
	// Misrouted counts records found in another partition than their endpoint's. again:
	// it was forwarded before, so two processes do not agree on the count of partitions.
	Misrouted func(again bool)
	// Held counts deliveries that were put on hold.
	Held func(cause HoldCause)
	// Unheld counts deliveries that left hold: settled, or given up with their partition.
	Unheld func()
	// HoldRead counts bytes that were read from hold.
	HoldRead func(bytes int)
	// BreakerChanged sees every transition.
	BreakerChanged func(c BreakerChange)
	// Interrupted counts attempts that came to no outcome.
	Interrupted func(class schemas.ErrorClass)
}
