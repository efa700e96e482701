package dispatcher

import (
	"container/list"
	"time"

	"golang.org/x/time/rate"

	"github.com/milena-project/milena/schemas"
)

// item is a delivery on its way through a lane.
type item struct {
	d      schemas.Delivery
	key    attemptKey
	part   *Partition
	offset int64
	ready  time.Time // when it could have been sent for the first time

	started    time.Time // of the attempt in flight
	unproven   bool      // its lane was unproven then
	ep         *Endpoint // what its lane used then
	prev, next *item     // neighbours in lane.open, in order of their start
}

func (it *item) size() int64 { return int64(len(it.d.Payload)) + itemOverhead }

// itemOverhead is about what an item takes beside its payload, in bytes.
const itemOverhead = 1 << 10

// lane is the in-process queue of one endpoint with its limits. All fields are
// guarded by lanes.mu.
type lane struct {
	id     string
	tenant *tenant
	part   *Partition // the assignment that its queue was read under
	ep     *Endpoint  // as of the last attempt; nil: not known yet

	behind   fifo[*item] // in log order, from deliveries
	open     *item       // oldest attempt in flight
	openLast *item
	inFlight int
	pace     pace

	pausedUntil time.Time     // by Retry-After, or for a moment after a fault of our own
	bucket      *rate.Limiter // nil: no rate limit
	disabledAt  int64         // auto-disabled at that version of the endpoint; 0: not

	place     place         // which list of lanes it stands in
	undecided bool          // waits for the registry's barrier; nothing starts
	wake      *time.Timer   // re-evaluates the lane; nil: none is set
	idle      *list.Element // in lanes.idle while it has no work
}

// place is where a lane stands; it stands in one list at a time.
type place uint8

const (
	placeNone      place = iota // nothing to start now; an event or wake brings it back
	placeRing                   // may start something as soon as it is its turn
	placeUnproven               // waits for one of the slots that unproven lanes share
	placeSlow                   // waits until fewer than half of the slots are taken
	placeUnsettled              // waits for writes of its partition
)

// pushOpen notes that it is in flight. Starts are in order of time.
func (l *lane) pushOpen(it *item) {
	l.inFlight++
	it.prev, it.next = l.openLast, nil
	if l.openLast == nil {
		l.open = it
	} else {
		l.openLast.next = it
	}
	l.openLast = it
}

func (l *lane) removeOpen(it *item) {
	l.inFlight--
	if it.prev == nil {
		l.open = it.next
	} else {
		it.prev.next = it.next
	}
	if it.next == nil {
		l.openLast = it.prev
	} else {
		it.next.prev = it.prev
	}
	it.prev, it.next = nil, nil
}

// oldest is how long its oldest attempt has been in flight.
func (l *lane) oldest(now time.Time) time.Duration {
	if l.open == nil {
		return 0
	}
	return now.Sub(l.open.started)
}

// use takes a configuration into account, and starts a rate limit's bucket empty:
// whoever owned the endpoint before may have spent it.
func (l *lane) use(ep *Endpoint, now time.Time) {
	if ep == l.ep {
		return
	}
	l.ep = ep
	if ep == nil || ep.RateLimit == nil {
		l.bucket = nil
		return
	}
	limit, burst := rate.Limit(ep.RateLimit.Rate), max(1, ep.RateLimit.Burst)
	if l.bucket == nil {
		l.bucket = rate.NewLimiter(limit, burst)
		l.bucket.AllowN(now, burst)
		return
	}
	l.bucket.SetLimitAt(now, limit)
	l.bucket.SetBurstAt(now, burst)
}

// enabled reports whether the endpoint may be sent to as far as we know.
func (l *lane) enabled() bool {
	return l.ep != nil && l.ep.State == schemas.StateEnabled && l.ep.Version > l.disabledAt
}

// free reports whether nothing would be lost with the lane but its proof.
func (l *lane) free(now time.Time) bool {
	return l.behind.len() == 0 && l.inFlight == 0 && !l.undecided && l.disabledAt == 0 &&
		!l.pausedUntil.After(now) && (l.bucket == nil || l.bucket.TokensAt(now) >= float64(l.bucket.Burst()))
}
