package dispatcher

import (
	"container/list"
	"sync"
	"time"
)

// lanes decides which delivery is sent next. Its lock is held for a few
// microseconds at a time: nothing under it blocks, sends or writes.
type lanes struct {
	cfg   Config
	start func(*lane, *item) // begins an attempt on a goroutine of its own

	mu           sync.Mutex
	byID         map[string]*lane
	ring         ring
	inFlight     int
	unproven     int // of those in flight, attempts of unproven lanes
	queued       int
	bytes        int64
	waitUnproven fifo[*lane]
	waitSlow     fifo[*lane]
	undecided    []*lane
	idle         *list.List // of *lane, longest without work first
	full         []*Partition
	draining     bool // shutdown: slow lanes start nothing
	closed       bool // shutdown: nothing starts

	decide chan struct{} // has an element while undecided has some
}

func newLanes(cfg Config, start func(*lane, *item)) *lanes {
	return &lanes{
		cfg: cfg, start: start,
		byID: map[string]*lane{}, ring: ring{tenants: map[string]*tenant{}},
		idle: list.New(), decide: make(chan struct{}, 1),
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

// offer puts a delivery at the end of its endpoint's lane. ep is nil where the
// registry has no such endpoint.
func (s *lanes) offer(it *item, ep *Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	l := s.lane(it, ep)
	l.use(ep, now)
	s.enqueue(l, it, false)
	if !l.enabled() {
		s.undecide(l)
	}
	s.settleIn(l, now)
	s.pump(now)
}

// lane returns the endpoint's lane, made where there is none.
func (s *lanes) lane(it *item, ep *Endpoint) *lane {
	l := s.byID[it.d.EndpointID]
	if l == nil {
		name := ""
		if ep != nil {
			name = ep.Tenant
		}
		l = &lane{id: it.d.EndpointID, tenant: s.ring.tenant(name)}
		s.byID[l.id] = l
	}
	if l.idle != nil {
		s.idle.Remove(l.idle)
		l.idle = nil
	}
	l.part = it.part
	return l
}

func (s *lanes) enqueue(l *lane, it *item, front bool) {
	if front {
		l.behind.pushFront(it)
	} else {
		l.behind.push(it)
	}
	s.bytes += it.size()
	s.queued++
	it.part.queued++
}

// dequeue takes the head of a lane's queue and counts it as work under way.
func (s *lanes) dequeue(l *lane) *item {
	it, _ := l.behind.pop()
	s.bytes -= it.size()
	s.queued--
	it.part.queued--
	it.part.open++
	return it
}

// settleIn puts a lane where it belongs after something about it has changed.
func (s *lanes) settleIn(l *lane, now time.Time) {
	switch {
	case l.place != placeNone:
	case l.behind.len() > 0 && !l.undecided && l.inFlight < l.pace.limit(l.ep.maxInFlight()):
		s.ring.add(l)
	case l.behind.len() == 0 && l.inFlight == 0 && l.idle == nil && !l.undecided:
		l.idle = s.idle.PushBack(l)
		s.evict(now)
	}
}

// evict forgets idle lanes above the bound. One that still matters (paused, its
// bucket not full) goes to the end of the line.
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
		delete(s.byID, l.id)
	}
}

// pump starts attempts while a slot is free and a lane has something to send.
func (s *lanes) pump(now time.Time) {
	for l, it := s.pick(now); it != nil; l, it = s.pick(now) {
		s.start(l, it)
	}
}

// pick takes the next delivery in turn and a slot for it; nil when there is none.
func (s *lanes) pick(now time.Time) (*lane, *item) {
	for s.inFlight < s.cfg.MaxInFlight && !s.closed {
		l := s.ring.take()
		if l == nil {
			return nil, nil
		}
		if !s.mayStart(l, now) {
			continue
		}
		it := s.dequeue(l)
		it.started, it.unproven, it.ep = now, !l.pace.proven, l.ep
		l.pushOpen(it)
		s.inFlight++
		if it.unproven {
			s.unproven++
		}
		s.settleIn(l, now)
		return l, it
	}
	return nil, nil
}

// mayStart reports whether a lane may begin an attempt now. Where it may not, the
// lane stands where the event that changes that will find it.
func (s *lanes) mayStart(l *lane, now time.Time) bool {
	switch {
	case l.behind.len() == 0 || l.undecided || l.inFlight >= l.pace.limit(l.ep.maxInFlight()):
		return false // offer, the barrier's answer or its own next finish brings it back
	case !l.enabled():
		s.undecide(l)
		return false
	case l.pausedUntil.After(now):
		s.wakeAt(l, l.pausedUntil, now)
		return false
	case s.draining && l.oldest(now) > drainSlow:
		return false
	case l.part.unacked >= s.cfg.Unsettled:
		l.place = placeUnsettled
		l.part.blocked = append(l.part.blocked, l)
		return false
	case !l.pace.proven && s.unproven >= max(1, s.cfg.MaxInFlight/2):
		l.place = placeUnproven
		s.waitUnproven.push(l)
		return false
	case l.inFlight > 0 && 2*s.inFlight > s.cfg.MaxInFlight && l.oldest(now) > l.pace.slow():
		l.place = placeSlow
		s.waitSlow.push(l)
		return false
	case l.bucket != nil && !l.bucket.AllowN(now, 1):
		need := (1 - l.bucket.TokensAt(now)) / float64(l.bucket.Limit())
		s.wakeAt(l, now.Add(time.Duration(need*float64(time.Second))+time.Millisecond), now)
		return false
	}
	return true
}

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

// ending is how an attempt leaves its lane.
type ending uint8

const (
	endSucceeded ending = iota
	endFailed
	endThrottled   // 429
	endFinal       // the answer was about this event; it says nothing of the endpoint's health
	endInterrupted // back to the head of the queue
	endUndecided   // back to the head of the queue until the barrier has been passed
)

// finish gives an attempt's slot back and returns the next one to make, if any.
// What goes on to be settled counts as work of its partition until acked.
func (s *lanes) finish(l *lane, it *item, end ending, pause time.Time) (*lane, *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	l.removeOpen(it)
	s.inFlight--
	if it.unproven {
		s.unproven--
		if next, ok := s.waitUnproven.pop(); ok {
			s.back(next, now)
		}
	}
	if pause.After(l.pausedUntil) {
		l.pausedUntil = pause
	}
	switch end {
	case endSucceeded:
		l.pace.succeeded(now.Sub(it.started), l.ep.maxInFlight())
	case endFailed:
		l.pace.failed()
	case endThrottled:
		l.pace.throttled()
	case endFinal:
	case endInterrupted, endUndecided:
		s.putBack(l, it)
		if end == endUndecided && !it.part.stopped {
			s.undecide(l)
		}
	}
	if end < endInterrupted {
		it.part.unacked++
	}
	if 2*s.inFlight <= s.cfg.MaxInFlight {
		for next, ok := s.waitSlow.pop(); ok; next, ok = s.waitSlow.pop() {
			s.back(next, now)
		}
	}
	s.settleIn(l, now)
	nextLane, next := s.pick(now)
	s.pump(now)
	return nextLane, next
}

// back returns a lane from a waiting list.
func (s *lanes) back(l *lane, now time.Time) {
	l.place = placeNone
	s.settleIn(l, now)
}

// putBack undoes dequeue; a record of a partition that is gone is given up, and
// whoever owns the partition now reads it again.
func (s *lanes) putBack(l *lane, it *item) {
	it.part.open--
	if it.part.stopped {
		it.part.gaveUp(it)
		it.part.checkDrained()
		return
	}
	s.enqueue(l, it, true)
}

// acked ends one piece of work of a partition: its offset is done.
func (s *lanes) acked(p *Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.open--
	p.unacked--
	if len(p.blocked) > 0 && p.unacked < s.cfg.Unsettled {
		now := time.Now()
		blocked := p.blocked
		p.blocked = nil
		for _, l := range blocked {
			s.back(l, now)
		}
		s.pump(now)
	}
	p.checkDrained()
	s.signalRoom()
}
