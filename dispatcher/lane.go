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
	tenant *tenant   // that it is counted for
	held   *held     // nil: read from deliveries; else from hold
	offset int64     // in the topic that it was read from
	heldAt int64     // when it was appended to hold, unix ms; 0: it was not read from there
	ready  time.Time // when it could have been sent for the first time; at its attempt, also for its endpoint's sake

	heir *held // of a later assignment, which read the same record of hold while this one was open

	deliveryID string // made at its first attempt; see names
	messageID  string

	// Of the attempt in flight.
	lane       *lane
	started    time.Time
	unproven   bool      // its lane was unproven then
	ep         *Endpoint // what its lane used then
	ticket     ticket    // of the breaker
	span       *Span     // nil: nobody follows it
	prev, next *item     // neighbours among the lane's open attempts, in order of their start
}

func (it *item) size() int64 { return int64(len(it.d.Payload)) + itemOverhead }

// names are the delivery's ids, made once: the request and the delivery log both
// have them. Whoever makes the attempt, or settles the item without one, calls it.
func (it *item) names() (deliveryID, messageID string) {
	if it.deliveryID == "" {
		it.deliveryID, it.messageID = it.d.ID(), it.d.MessageID()
	}
	return it.deliveryID, it.messageID
}

// itemOverhead is about what an item takes beside its payload, in bytes.
const itemOverhead = 1 << 10

// lane is the in-process state of one endpoint: its queues, its limits and its
// health. All fields are guarded by lanes.mu.
type lane struct {
	id      string
	key     string // in lanes.byID: the id, but for a stray lane; see strayKey
	tenant  *tenant
	part    *Partition // the assignment that its queues were read under
	ep      *Endpoint  // as last used; nil: not known yet
	version int64      // the newest of its configurations that was used

	ahead     fifo[*item]     // read from hold; served first
	behind    fifo[*item]     // read from deliveries; served when nothing is left on hold
	held      *held           // nil: nothing is on hold
	busy      map[int64]*item // by offset of hold: read from there and not settled, also under an assignment of before
	open      *item           // oldest attempt in flight
	openLast  *item
	inFlight  int
	pace      pace
	reached   time.Time     // when it answered last
	unreached time.Time     // when it was well and could not be reached
	bucket    *rate.Limiter // nil: no rate limit

	breaker     breaker
	episode     episode
	disabledAt  int64     // auto-disabled at that version of the endpoint; 0: not
	pausedUntil time.Time // by Retry-After, or for a moment after a fault of our own
	pauseStatus int       // the answer that asked for the pause; 0: our own

	telling telling // the endpoint's health record
	anchor  int64   // where health says the endpoint's records on hold begin; -1: it does not

	place     place         // which list of lanes it stands in
	able      time.Time     // since when nothing of the endpoint's own keeps it from starting something; zero: something does
	undecided bool          // waits for the registry's barrier; nothing starts
	wake      *time.Timer   // re-evaluates the lane; nil: none was ever set
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

// head is the queue that the next attempt comes from; nil while there is none, or
// what comes next stands on hold unread.
func (l *lane) head() *fifo[*item] {
	switch {
	case l.ahead.len() > 0:
		return &l.ahead
	case l.held != nil && l.held.inLog():
		return nil
	case l.behind.len() > 0:
		return &l.behind
	}
	return nil
}

// most is how many attempts may be in flight now.
func (l *lane) most() int { return l.pace.limit(l.ep.maxInFlight()) }

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

// use takes a configuration into account. A newer one than the breaker, the pause
// or the auto-disable were about ends them: someone has mended the endpoint, or
// said enable.
func (l *lane) use(ep *Endpoint, now time.Time) (mended bool) {
	if ep == l.ep {
		return false
	}
	mended = l.version > 0 && ep.version() > l.version
	l.ep, l.version = ep, max(l.version, ep.version())
	if mended {
		l.mend()
	}
	if ep == nil || ep.RateLimit == nil {
		l.bucket = nil
		return mended
	}
	// A rate below nothing, which registration refuses, is nothing: all is held. Its
	// waits would be below nothing too, and a queue that seems to start at once and
	// never does keeps its partition's commit where it is.
	limit, burst := rate.Limit(max(0, ep.RateLimit.Rate)), ep.RateLimit.Size()
	if l.bucket == nil {
		// Empty: whoever owned the endpoint before may have spent it.
		l.bucket = rate.NewLimiter(limit, burst)
		l.bucket.AllowN(now, burst)
		return mended
	}
	l.bucket.SetLimitAt(now, limit)
	l.bucket.SetBurstAt(now, burst)
	return mended
}

func (l *lane) mend() {
	l.breaker.reset()
	l.episode = episode{}
	l.disabledAt = 0
	if l.pauseStatus != 0 {
		l.pausedUntil, l.pauseStatus = time.Time{}, 0
	}
}

// disown forgets all that the owner of its partition knows: another may own it now,
// and health says it when the partition comes back. What is in flight stays.
func (l *lane) disown() {
	if l.telling.timer != nil {
		l.telling.timer.Stop()
	}
	l.mend()
	l.pausedUntil, l.pauseStatus = time.Time{}, 0
	l.held, l.anchor, l.telling = nil, -1, telling{}
	l.ep, l.version, l.bucket = nil, 0, nil
}

// enabled reports whether the endpoint may be sent to as far as we know.
func (l *lane) enabled() bool {
	return l.ep != nil && l.ep.State == schemas.StateEnabled && l.ep.Version > l.disabledAt
}

// working reports whether anything of the endpoint is under way here.
func (l *lane) working() bool {
	return l.behind.len() > 0 || l.ahead.len() > 0 || l.inFlight > 0 || l.held != nil || l.undecided || len(l.busy) > 0 ||
		l.telling.writing || l.telling.dirty
}

// free reports whether nothing would be lost with the lane but its proof.
func (l *lane) free(now time.Time) bool {
	return !l.working() && l.disabledAt == 0 && !l.telling.stands && l.breaker.closed() && !l.episode.active() &&
		!l.pausedUntil.After(now) && (l.bucket == nil || l.bucket.TokensAt(now) >= float64(l.bucket.Burst()))
}
