package dispatcher

import (
	"container/list"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// lanes decides which delivery is sent next. Its lock is held for microseconds at a
// time: nothing under it blocks or sends, and what it writes goes to a buffer.
type lanes struct {
	cfg   Config
	d     *Dispatcher
	start func(*item) // begins an attempt on a goroutine of its own

	mu           sync.Mutex
	byID         map[string]*lane
	ring         ring
	inFlight     int
	unproven     int   // of those in flight, attempts of unproven lanes
	queued       int   // deliveries in lanes
	bytes        int64 // of those
	waitUnproven fifo[*lane]
	waitSlow     fifo[*lane]
	undecided    []*lane
	idle         *list.List // of *lane, longest without work first
	full         []*Partition
	meter        meter
	starved      starved
	fault        fault
	nextSearch   time.Time // when the longest lane may be looked for again
	draining     bool      // shutdown: slow lanes start nothing
	closed       bool      // shutdown: nothing starts

	decide chan struct{} // has an element while undecided has some
}

func newLanes(cfg Config, d *Dispatcher, start func(*item)) *lanes {
	return &lanes{
		cfg: cfg, d: d, start: start,
		byID: map[string]*lane{}, ring: ring{tenants: map[string]*tenant{}},
		idle: list.New(), decide: make(chan struct{}, 1),
	}
}

// lookTurn is how many lanes are looked at before others have their turn at the lock: 50,000
// lanes at once would keep everybody from sending for ten milliseconds.
const lookTurn = 256

// each calls f with every lane, under the lock, but not with all of them at the same
// moment. A lane that comes or goes meanwhile may be left out.
func (s *lanes) each(f func(*lane)) { s.eachResting(runtime.Gosched, f) }

// eachResting calls rest, without the lock, after each turn.
func (s *lanes) eachResting(rest func(), f func(*lane)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	looked := 0
	for _, l := range s.byID {
		f(l)
		if looked++; looked%lookTurn == 0 {
			s.mu.Unlock() // a map may change between two steps of a loop over it
			rest()
			s.mu.Lock()
		}
	}
}

// known returns the configuration that the endpoint's lane used last.
func (s *lanes) known(id string) *Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.byID[id]; l != nil {
		return l.ep
	}
	return nil
}

// offer gives a delivery to its endpoint's lane. ep is nil where the registry has
// no such endpoint.
func (s *lanes) offer(it *item, ep *Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it.part.inHand.Store(nil)
	now := time.Now()
	l := s.lane(it.d.EndpointID, it.part, tenantOf(ep))
	s.use(l, ep, now)
	if l.enabled() && !l.undecided {
		s.placeFresh(l, it, now)
	} else {
		s.enqueue(l, &l.behind, it)
		s.undecide(l)
	}
	s.settleIn(l, now)
	s.pump(now)
}

func tenantOf(ep *Endpoint) string {
	if ep == nil {
		return ""
	}
	return ep.Tenant
}

// lane returns the endpoint's lane, made where there is none.
func (s *lanes) lane(id string, part *Partition, tenant string) *lane {
	return s.laneOf(id, id, part, tenant)
}

// strayKey is where the lane is that sends what an endpoint has on hold in a partition
// that is no longer its own, because the number of partitions was raised since. It is
// a lane beside the endpoint's: in one and the same, a record of the new partition
// would have ended the old one's assignment, and nobody would read its hold again.
func strayKey(id string, partition int32) string { return id + "@" + strconv.Itoa(int(partition)) }

func (s *lanes) laneOf(key, id string, part *Partition, tenant string) *lane {
	l := s.byID[key]
	if l == nil {
		l = &lane{id: id, key: key, tenant: s.ring.tenant(tenant), anchor: -1, part: part}
		s.byID[key] = l
	}
	if l.part != part {
		l.disown()
	}
	if l.idle != nil {
		s.idle.Remove(l.idle)
		l.idle = nil
	}
	l.part = part
	return l
}

func (s *lanes) breakerChanged(l *lane, from, to BreakerState) {
	if s.d.Hooks.BreakerChanged != nil {
		s.d.Hooks.BreakerChanged(BreakerChange{EndpointID: l.id, From: from, To: to, Until: l.breaker.until})
	}
}

// use takes an endpoint's current configuration into account.
func (s *lanes) use(l *lane, ep *Endpoint, now time.Time) {
	before := l.breaker.state(now)
	if l.use(ep, now) {
		if before != BreakerClosed {
			s.breakerChanged(l, before, BreakerClosed)
		}
		s.tell(l)
	}
	if ep != nil && ep.Tenant != l.tenant.name && l.place != placeRing {
		s.ring.leave(l.tenant)
		l.tenant = s.ring.tenant(ep.Tenant)
	}
}

// enqueue puts a delivery at the end of a lane's queue.
func (s *lanes) enqueue(l *lane, q *fifo[*item], it *item) {
	q.push(it)
	s.countQueued(l, it)
}

// requeue puts a delivery back to where it was taken from.
func (s *lanes) requeue(l *lane, q *fifo[*item], it *item) {
	q.insert(it, func(o *item) bool { return o.offset < it.offset })
	s.countQueued(l, it)
}

func (s *lanes) countQueued(l *lane, it *item) {
	it.tenant = l.tenant
	it.tenant.queued++
	s.bytes += it.size()
	s.queued++
	it.part.queued++
}

// dequeue takes the head of a lane's queue and counts it as work under way.
func (s *lanes) dequeue(q *fifo[*item]) *item {
	it, _ := q.pop()
	s.unqueue(it)
	it.part.open++
	return it
}

func (s *lanes) unqueue(it *item) {
	it.tenant.queued--
	s.bytes -= it.size()
	s.queued--
	it.part.queued--
}

// settleIn puts a lane where it belongs after something about it has changed.
func (s *lanes) settleIn(l *lane, now time.Time) {
	if l.place != placeNone {
		return
	}
	if s.wants(l, now) {
		s.ask(l)
	}
	switch {
	case !l.undecided && l.inFlight < l.most() && l.head() != nil:
		if l.able.IsZero() {
			l.able = now
		}
		s.ring.add(l)
	case l.held != nil && l.inFlight == 0 && l.head() == nil:
		s.wakeWhenSendable(l, now) // what is on hold is read then
	default:
		s.rest(l, now)
	}
}

// rest notes that a lane has no work, if so.
func (s *lanes) rest(l *lane, now time.Time) {
	if l.idle == nil && !l.working() && s.byID[l.key] == l {
		l.idle = s.idle.PushBack(l)
		s.evict(now)
	}
}

// wakeWhenSendable looks at a held lane again when its breaker or pause ends.
func (s *lanes) wakeWhenSendable(l *lane, now time.Time) {
	at := l.pausedUntil
	if !l.breaker.closed() && l.breaker.until.After(at) {
		at = l.breaker.until
	}
	if at.After(now) {
		s.wakeAt(l, at, now)
	}
}

// evict forgets idle lanes above the bound. One that still matters (paused, its
// bucket not full, its endpoint failing) goes to the end of the line.
func (s *lanes) evict(now time.Time) {
	for range 8 {
		if s.idle.Len() <= s.cfg.IdleLanes {
			return
		}
		l := s.idle.Front().Value.(*lane) //nolint:forcetypeassert // the list holds lanes only
		if !l.free(now) {
			s.idle.MoveToBack(l.idle)
			continue
		}
		s.idle.Remove(l.idle)
		if l.wake != nil {
			l.wake.Stop()
		}
		s.ring.leave(l.tenant)
		delete(s.byID, l.key)
	}
}

// pump starts attempts while a slot is free and a lane has something to send.
func (s *lanes) pump(now time.Time) {
	for it := s.pick(now); it != nil; it = s.pick(now) {
		s.start(it)
	}
}

// pick takes the next delivery in turn and a slot for it; nil when there is none.
func (s *lanes) pick(now time.Time) *item {
	for s.inFlight < s.cfg.MaxInFlight && !s.closed && !s.silent(now) {
		// One at a time, and again while there is room: a lane that has waited may
		// have nothing to send any more.
		waiting, unproven := s.waitUnproven.peek()
		if unproven = unproven && s.unproven < s.mostUnproven(); unproven {
			s.waitUnproven.pop()
			s.back(waiting, now)
		}
		l := s.ring.take(func(t *tenant) bool { return s.tenantMay(t, now) })
		if l == nil && unproven {
			continue
		}
		if l == nil {
			return nil
		}
		ticket, ok := s.mayStart(l, now)
		if !ok {
			if l.place == placeNone { // else it waits for us, and that counts
				l.able = time.Time{}
			}
			continue
		}
		it := s.dequeue(l.head())
		if l.able.After(it.ready) {
			it.ready = l.able
		}
		l.able = time.Time{}
		if ticket.done != nil {
			s.breakerChanged(l, BreakerOpen, BreakerHalfOpen)
		}
		it.lane, it.started, it.unproven, it.ep, it.ticket = l, now, !l.pace.proven, l.ep, ticket
		l.pushOpen(it)
		s.inFlight++
		s.tenantStarts(it.tenant, now)
		s.fault.probed = now
		if it.unproven {
			s.unproven++
		}
		s.settleIn(l, now)
		return it
	}
	return nil
}

// mayStart reports whether a lane may begin an attempt now. Where it may not, the
// lane stands where the event that changes that will find it.
func (s *lanes) mayStart(l *lane, now time.Time) (t ticket, ok bool) {
	switch {
	case l.head() == nil:
		s.rest(l, now) // what it had was dropped, or is on hold now
		return t, false
	case l.undecided || l.inFlight >= l.most():
		return t, false // offer, hold, the barrier or its own next finish brings it back
	case !l.enabled():
		s.undecide(l)
		return t, false
	case l.pausedUntil.After(now):
		s.wakeAt(l, l.pausedUntil, now)
		return t, false
	case l.breaker.open(now):
		s.wakeAt(l, l.breaker.until, now)
		return t, false
	case s.draining && l.oldest(now) > drainSlow:
		return t, false
	case l.part.unacked >= s.cfg.Unsettled:
		l.place = placeUnsettled
		l.part.blocked = append(l.part.blocked, l)
		return t, false
	case !l.pace.proven && s.unproven >= s.mostUnproven():
		l.place = placeUnproven
		s.waitUnproven.push(l)
		return t, false
	case l.inFlight > 0 && 2*s.inFlight > s.cfg.MaxInFlight && l.oldest(now) > l.pace.slow():
		l.place = placeSlow
		s.waitSlow.push(l)
		return t, false
	case l.bucket != nil && !l.bucket.AllowN(now, 1):
		need := seconds((1 - l.bucket.TokensAt(now)) / float64(l.bucket.Limit()))
		s.wakeAt(l, now.Add(need+time.Millisecond), now)
		return t, false
	}
	if t, ok = l.breaker.admit(now); !ok && !l.breaker.probing {
		s.wakeAt(l, now.Add(time.Millisecond), now) // gobreaker's clock is a moment behind ours
	}
	return t, ok
}

// mostUnproven is how many attempts of unproven lanes may be in flight.
func (s *lanes) mostUnproven() int { return max(1, s.cfg.MaxInFlight/2) }

// wakeAt looks at the lane again at that time.
func (s *lanes) wakeAt(l *lane, at, now time.Time) {
	after := max(0, at.Sub(now))
	if l.wake != nil {
		l.wake.Reset(after)
		return
	}
	l.wake = time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		s.settleIn(l, now)
		s.pump(now)
	})
}

// undecide keeps a lane from starting anything until the barrier has been passed:
// our view may be older than the endpoint.
func (s *lanes) undecide(l *lane) {
	if l.undecided {
		return
	}
	l.undecided = true
	s.undecided = append(s.undecided, l)
	select {
	case s.decide <- struct{}{}:
	default:
	}
}

// back returns a lane from a waiting list.
func (s *lanes) back(l *lane, now time.Time) {
	l.place = placeNone
	s.settleIn(l, now)
}
