package dispatcher

import (
	"context"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Our view of an endpoint may be older than the endpoint. Before it is called
// unknown, disabled or deleted, the registry's barrier is passed: then the view
// holds all that was committed when the question was asked.

// barrierRetry is how long undecided lanes wait after a barrier that failed.
const barrierRetry = 250 * time.Millisecond

func (d *Dispatcher) decideAll(ctx context.Context) {
	undecided := d.lanes.takeUndecided()
	if err := d.Endpoints.Barrier(ctx); err != nil {
		if ctx.Err() != nil {
			return
		}
		d.Logger.Warn("registry does not answer; deliveries to endpoints that it does not know wait", "err", err)
		d.lanes.holdUndecided(undecided)
		time.AfterFunc(barrierRetry, func() { d.lanes.returnUndecided(undecided) })
		return
	}
	for _, l := range undecided {
		ep := d.Endpoints.Endpoint(l.id, d.lanes.endpointOf(l))
		for _, it := range d.lanes.decided(l, ep) {
			d.end(it, ep)
		}
	}
}

// end settles a delivery whose endpoint cannot be sent to.
func (d *Dispatcher) end(it *item, ep *Endpoint) {
	switch {
	case ep == nil && (time.Since(it.d.Enqueued) < d.cfg.UnknownFor || !d.clock.trusted()):
		// It may be created just now: a producer that writes at once is not punished.
		d.duplicates.forget(it.key)
		wait := min(unknownWait, d.cfg.UnknownFor)
		it.d.NotBefore, it.d.Released = time.Now().Add(wait), time.Time{}
		d.Parker.Park(&it.d, it.settlement(1).acked)
	case ep == nil:
		d.bury(it, schemas.ReasonEndpointUnknown, nil)
	case ep.State == schemas.StateDeleted:
		d.bury(it, schemas.ReasonEndpointDeleted, nil)
	default:
		d.bury(it, schemas.ReasonEndpointDisabled, nil)
	}
}

// unknownWait is how long a delivery for an unknown endpoint is parked at a time.
const unknownWait = 30 * time.Second

func (s *lanes) takeUndecided() []*lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.undecided
	s.undecided = nil
	return taken
}

func (s *lanes) returnUndecided(ls []*lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.undecided = append(s.undecided, ls...)
	select {
	case s.decide <- struct{}{}:
	default:
	}
}

// decided ends a lane's wait for the barrier. Where the endpoint cannot be sent to,
// it returns the lane's deliveries, to be settled without an attempt.
func (s *lanes) decided(l *lane, ep *Endpoint) []*item {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	l.undecided = false
	s.use(l, ep, now)
	var ended []*item
	if !l.enabled() {
		for _, q := range []*fifo[*item]{&l.ahead, &l.behind} {
			for q.len() > 0 {
				it := s.dequeue(q)
				it.part.unacked++
				ended = append(ended, it)
			}
		}
	}
	s.settleIn(l, now)
	s.pump(now)
	return ended
}

func (s *lanes) endpointOf(l *lane) *Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.ep
}

// usable takes the endpoint's current configuration into account and reports
// whether it may be sent to.
func (s *lanes) usable(l *lane, ep *Endpoint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.use(l, ep, time.Now())
	return l.enabled()
}

// refreshEvery is how often the configuration of endpoints in trouble is looked at.
const refreshEvery = time.Second

// refresh lets an operator's word reach lanes that nothing else wakes: a newer
// configuration closes a breaker and ends a pause, and a disabled endpoint's
// deliveries on hold end as dead letters.
func (d *Dispatcher) refresh() {
	for l, known := range d.lanes.troubled() {
		if ep := d.Endpoints.Endpoint(l.id, known); ep != nil && ep != known {
			d.lanes.refreshed(l, ep)
		}
	}
}

func (s *lanes) troubled() map[*lane]*Endpoint {
	now := time.Now()
	found := map[*lane]*Endpoint{}
	s.each(func(l *lane) {
		if l.held != nil || l.telling.stands || !l.breaker.closed() || l.pausedUntil.After(now) || l.disabledAt != 0 {
			found[l] = l.ep
		}
	})
	return found
}

func (s *lanes) refreshed(l *lane, ep *Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if l.part.gone || ep.Version < l.version {
		return
	}
	s.use(l, ep, now)
	s.settleIn(l, now)
	s.pump(now)
}

// holdUndecided puts on hold what has waited for the registry for longer than a
// lane's queue may last: a barrier that fails costs no memory and kills nothing.
func (s *lanes) holdUndecided(ls []*lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, l := range ls {
		if first, ok := l.behind.peek(); ok && now.Sub(first.ready) > s.cfg.LaneTime {
			s.hold(l, HoldUnknown)
		}
	}
}
