package dispatcher

import (
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"
)

// When a breaker opens, and for how long.
const (
	tripInARow     = 5                // failures in a row, however far apart
	ringSize       = 100              // outcomes that the share of failures is taken of
	ringLeast      = 20               // and how many there must be
	tripShare      = 0.5              //
	clientSize     = 40               // outcomes that the share of 4xx answers is taken of
	clientShare    = 0.95             // a wrong route, not a bad event
	clientAge      = 10 * time.Minute // none of them older
	openFirst      = 30 * time.Second
	openLongest    = 10 * time.Minute
	closeSuccesses = 20 // after so many the next opening is short again
)

// signal is what an answer says about an endpoint's health.
type signal uint8

const (
	signalSuccess   signal = iota // 2xx, and 429: it is up
	signalClient                  // another 4xx: it is up, and refuses
	signalFailure                 // 5xx, 3xx, and no answer
	signalTimeout                 // no answer in time
	signalExcluded                // interrupted: it says nothing
	signalThrottled               // 429
)

func (s signal) failed() bool { return s == signalFailure || s == signalTimeout }

// breaker stops sending to an endpoint that fails. gobreaker holds the way from
// open over half-open to closed; when to open is counted here, because its window
// forgets quiet endpoints and its Timeout is fixed: each opening, and each one that
// is restored from health, gets a fresh instance that is tripped at once. Late
// results of an older instance reach neither it nor the ring.
//
// A breaker is guarded by lanes.mu and calls nothing back. The zero value is closed.
type breaker struct {
	ring    []mark // of the last ringSize outcomes; nil while nothing has failed
	next    int
	epoch   int // openings so far: attempts of an older one are late
	row     row
	step    int                                   // openings without closeSuccesses between them; 0: none
	since   int                                   // successes since it closed
	current *gobreaker.TwoStepCircuitBreaker[any] // nil: closed
	until   time.Time                             // open until then
	probing bool                                  // the one request of half-open is under way
	refused bool                                  // opened because nearly every answer was 4xx
}

type mark struct {
	signal signal
	at     time.Time
}

// row counts failures without a success between them. Attempts that began before
// the first of them failed count once, so that one restart of a receiver with ten
// requests open is one failure; but a round in which every attempt timed out is as
// good as five, because that is what a hanging endpoint looks like. A round of one is
// as good as three: an idle endpoint that has not answered once gets a second chance
// at once, and no more, for each costs a slot for the whole timeout.
type row struct {
	count    int
	first    time.Time // when the first of them failed
	round    int       // attempts of the first round
	open     int       // of those, the ones that have not finished
	timeouts bool      // all of that round that finished timed out
}

// tripLone is what a round counts for that was one attempt and timed out.
const tripLone = 3

// BreakerState names a state as metrics and people do.
type BreakerState string

const (
	BreakerClosed   BreakerState = "closed"
	BreakerOpen     BreakerState = "open"
	BreakerHalfOpen BreakerState = "half-open"
)

func (b *breaker) state(now time.Time) BreakerState {
	switch {
	case b.closed():
		return BreakerClosed
	case b.open(now):
		return BreakerOpen
	default:
		return BreakerHalfOpen
	}
}

// open reports whether nothing may be sent before a time that has not come.
func (b *breaker) open(now time.Time) bool { return b.current != nil && b.until.After(now) }

// closed reports whether requests flow.
func (b *breaker) closed() bool { return b.current == nil }

// admit reports whether an attempt may begin. While the breaker is half-open it is
// the probe, of which there is one.
func (b *breaker) admit(now time.Time) (ticket, bool) {
	t := ticket{epoch: b.epoch}
	if b.current == nil {
		return t, true
	}
	if b.probing || b.open(now) {
		return t, false
	}
	done, err := b.current.Allow()
	if err != nil {
		return t, false
	}
	t.done, b.probing = done, true
	return t, true
}

// ticket belongs to one attempt, and is handed back to settle exactly once.
type ticket struct {
	epoch int
	done  func(error) // of a probe
}

var errFailed = errors.New("failed")

// settle takes an attempt's outcome into account and reports whether the breaker
// opened or closed by it. started is when the attempt began, inFlight how many
// others of the endpoint are still open.
func (b *breaker) settle(t ticket, s signal, started, now time.Time, inFlight int) (changed bool) {
	if t.done != nil && t.epoch == b.epoch {
		return b.settleProbe(t, s, now)
	}
	if t.done != nil {
		t.done(errFailed) // of an instance that is gone
	}
	if t.epoch != b.epoch || s == signalExcluded || b.current != nil {
		return false
	}
	b.count(s, started, now, inFlight)
	if !s.failed() && s != signalClient {
		b.succeeded()
		return false
	}
	switch {
	case b.trips():
		b.trip(now)
	case b.allRefused(now):
		b.trip(now)
		b.refused = true
	default:
		return false
	}
	return true
}

func (b *breaker) settleProbe(t ticket, s signal, now time.Time) (changed bool) {
	b.probing = false
	switch {
	case s == signalExcluded:
		// gobreaker must hear of every probe, or half-open is stuck for ever: it
		// hears of a failure, and a fresh instance is ready for the next probe at once.
		t.done(errFailed)
		b.current = tripped(0)
		b.until = now
		return false
	case s.failed() || (b.refused && s == signalClient): // a wrong route is no better for one more 4xx
		refused := b.refused
		t.done(errFailed)
		b.trip(now)
		b.refused = refused
	default: // whatever it says of the event, it is up
		t.done(nil)
		b.current, b.until = nil, time.Time{}
		b.ring, b.next, b.row, b.since = nil, 0, row{}, 0
		b.epoch++
		b.succeeded()
	}
	return true
}

func (b *breaker) succeeded() {
	b.row = row{}
	if b.since++; b.since >= closeSuccesses {
		b.step = 0
	}
}

func (b *breaker) count(s signal, started, now time.Time, inFlight int) {
	if b.ring == nil {
		if !s.failed() && s != signalClient {
			return // an endpoint that has never failed costs no ring
		}
		b.ring = make([]mark, 0, ringSize)
	}
	if len(b.ring) < ringSize {
		b.ring = append(b.ring, mark{s, now})
	} else {
		b.ring[b.next] = mark{s, now}
	}
	b.next = (b.next + 1) % ringSize
	if s.failed() {
		b.row.add(s, started, now, inFlight)
	}
}

func (r *row) add(s signal, started, now time.Time, inFlight int) {
	switch {
	case r.count == 0:
		r.count, r.first, r.round, r.open, r.timeouts = 1, now, 1+inFlight, inFlight, true
	case started.Before(r.first): // of the first round
		r.open--
	default:
		r.count++
		r.round, r.open, r.timeouts = 1, 0, true // alone: its lane is unproven
	}
	r.timeouts = r.timeouts && s == signalTimeout
	switch {
	case r.open > 0 || !r.timeouts:
	case r.round > 1:
		r.count = max(r.count, tripInARow)
	default:
		r.count += tripLone - 1
	}
}

func (b *breaker) trips() bool {
	if b.row.count >= tripInARow {
		return true
	}
	failed := 0
	for _, m := range b.ring {
		if m.signal.failed() {
			failed++
		}
	}
	return len(b.ring) >= ringLeast && float64(failed) >= tripShare*float64(len(b.ring))
}

// allRefused reports whether nearly all of the last answers were 4xx.
func (b *breaker) allRefused(now time.Time) bool {
	if len(b.ring) < clientSize {
		return false
	}
	refused := 0
	for i := range clientSize {
		m := b.ring[(b.next-1-i+2*ringSize)%ringSize%len(b.ring)]
		if now.Sub(m.at) > clientAge {
			return false
		}
		if m.signal == signalClient {
			refused++
		}
	}
	return float64(refused) >= clientShare*clientSize
}

// trip opens the breaker for its next step.
func (b *breaker) trip(now time.Time) {
	b.step++
	b.openFor(openTime(b.step), now)
}

// restore opens it as health says, but for no longer than a breaker opens: the clock of
// who wrote that may have been ahead of ours.
func (b *breaker) restore(step int, until, now time.Time) {
	if step <= 0 {
		return
	}
	b.step = step
	b.openFor(min(max(0, until.Sub(now)), openTime(step)), now)
}

func (b *breaker) openFor(d time.Duration, now time.Time) {
	b.epoch++
	b.ring, b.next, b.row, b.since = nil, 0, row{}, 0
	b.probing, b.refused = false, false
	b.current, b.until = tripped(d), now.Add(d)
}

// reset closes it: an operator said so, or a newer configuration.
func (b *breaker) reset() { *b = breaker{epoch: b.epoch + 1} }

// openTime doubles from openFirst to openLongest.
func openTime(step int) time.Duration {
	return min(openFirst<<min(step-1, 16), openLongest)
}

// tripped makes a gobreaker that is open for d from now. It cannot be made in a
// state, so it trips on its first failure, which is reported at once.
func tripped(d time.Duration) *gobreaker.TwoStepCircuitBreaker[any] {
	cb := gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		Timeout:     max(d, 1), // 0 would be its default of a minute
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 1 },
	})
	if done, err := cb.Allow(); err == nil {
		done(errFailed)
	}
	return cb
}
