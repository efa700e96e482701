package dlq

import (
	"container/heap"
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// pace is how fast a run may write: in all, and for each endpoint.
type pace struct {
	all *rate.Limiter // nil: unlimited

	mu       sync.Mutex
	interval time.Duration // between two letters of an endpoint; 0: none
	next     map[string]time.Time
}

// horizon is how far ahead the slots of an endpoint are given away: letters that
// would wait for longer are read again later, so that memory is bounded by rate and
// time, not by what an endpoint has.
const horizon = 20 * time.Second

func newPace(all, endpoint float64) *pace {
	p := &pace{next: map[string]time.Time{}}
	if all > 0 {
		p.all = rate.NewLimiter(rate.Limit(all), burst(all))
		p.all.AllowN(time.Now(), burst(all)-1) // one may go at once; there is nothing to make up for yet
	}
	if endpoint > 0 {
		p.interval = time.Duration(float64(time.Second) / endpoint)
	}
	return p
}

// burst is what 300 ms bring: a process that did not get its turn for so long catches
// up, and no ten seconds hold more than three per cent too much.
func burst(r float64) int { return max(1, int(math.Ceil(r*3/10))) }

func (p *pace) wait(ctx context.Context) error {
	if p.all == nil {
		return ctx.Err()
	}
	return p.all.Wait(ctx)
}

func (p *pace) limit() float64 {
	if p.all == nil {
		return 0
	}
	return float64(p.all.Limit())
}

// set changes the rate of all; only for a pace that had one.
func (p *pace) set(r float64) {
	p.all.SetLimit(rate.Limit(r))
	p.all.SetBurst(burst(r))
}

// slot is when the next letter of an endpoint may go; false: beyond the horizon.
func (p *pace) slot(endpoint string, now time.Time) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.next[endpoint]
	if at.Before(now) {
		at = now
	}
	if at.Sub(now) > horizon {
		return at, false
	}
	p.next[endpoint] = at.Add(p.interval)
	return at, true
}

// timed is the letters that wait for their slot, the earliest first.
type timed []timedEntry

type timedEntry struct {
	at    time.Time
	entry *Entry
}

func (t timed) Len() int           { return len(t) }
func (t timed) Less(i, j int) bool { return t[i].at.Before(t[j].at) }
func (t timed) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timed) Push(x any)        { *t = append(*t, x.(timedEntry)) }
func (t *timed) Pop() any {
	old := *t
	n := len(old) - 1
	e := old[n]
	old[n] = timedEntry{}
	*t = old[:n]
	return e
}

// waitingBytes bounds the letters that wait for their slots.
const waitingBytes = 32 << 20

// queue hands letters over when their slots come. One goroutine, run, takes; many put.
type queue struct {
	mu     sync.Mutex
	heap   timed
	bytes  int
	closed bool
	wake   chan struct{} // capacity 1: something changed
	room   chan struct{} // capacity 1: there may be room
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1), room: make(chan struct{}, 1)} }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// put waits for room.
func (q *queue) put(ctx context.Context, at time.Time, e *Entry) error {
	weight := e.Size + entryWeight
	for {
		q.mu.Lock()
		if q.bytes == 0 || q.bytes+weight <= waitingBytes {
			q.bytes += weight
			heap.Push(&q.heap, timedEntry{at, e.detach()})
			q.mu.Unlock()
			poke(q.wake)
			poke(q.room) // for the next who waits
			return nil
		}
		q.mu.Unlock()
		select {
		case <-q.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close lets run return when all is handed over.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	poke(q.wake)
}

func (q *queue) run(ctx context.Context, send func(context.Context, *Entry) error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		q.mu.Lock()
		wait := time.Duration(math.MaxInt64)
		var e *Entry
		if len(q.heap) > 0 {
			if wait = time.Until(q.heap[0].at); wait <= 0 {
				e = heap.Pop(&q.heap).(timedEntry).entry
				q.bytes -= e.Size + entryWeight
			}
		}
		ended := q.closed && e == nil && len(q.heap) == 0
		q.mu.Unlock()
		if ended {
			return nil
		}
		if e != nil {
			poke(q.room)
			if err := send(ctx, e); err != nil {
				return err
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-q.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
