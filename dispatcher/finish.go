package dispatcher

import (
	"net/http"
	"time"

	"github.com/milena-project/milena/schemas"
)

// ending is how an attempt leaves its lane.
type ending struct {
	signal    signal
	throttled bool      // 429
	undecided bool      // the registry has to be asked before anything else is sent
	settled   bool      // it came to an outcome; else back to the head of its queue
	pause     time.Time // of the lane; zero: none
	status    int       // the answer that asks for the pause
	result    *result
	disable   bool // the endpoint asked for no more (410)
}

// endingOf says what a verdict means for the lane.
func endingOf(v verdict, r *result) ending {
	e := ending{settled: true, result: r, disable: v.disable, status: r.status, signal: signalFailure}
	switch {
	case v.outcome == schemas.OutcomeDelivered:
		e.signal = signalSuccess
	case r.status == http.StatusTooManyRequests && r.class == "":
		e.signal, e.throttled = signalThrottled, true
	case r.class == "" && r.status >= 400 && r.status < 500:
		e.signal = signalClient
	case r.class == schemas.ClassTimeout:
		e.signal = signalTimeout
	}
	if r.retryAfter > 0 && (r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable) {
		e.pause = time.Now().Add(min(r.retryAfter, maxPause))
	}
	return e
}

// maxPause is the longest that one answer may pause a lane.
const maxPause = time.Hour

// interruptedFor puts an attempt back to the head of its queue and lets the lane
// rest for a moment.
func interruptedFor(rest time.Duration) ending {
	return ending{signal: signalExcluded, pause: time.Now().Add(rest)}
}

// finish gives an attempt's slot back and returns the next one to make, if any.
// What goes on to be settled counts as work of its partition until acked.
func (s *lanes) finish(it *item, e ending) (next *item, notice *schemas.Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, l := time.Now(), it.lane
	l.removeOpen(it)
	s.inFlight--
	s.tenantEnds(it.tenant)
	if e.result != nil && e.result.status > 0 {
		s.answered(l, now)
	}
	if s.meter.count(now) {
		s.starved.look(now)
	}
	if it.unproven {
		s.unproven--
	}
	if l.place == placeSlow {
		// What stood out may be this attempt.
		s.waitSlow.remove(func(o *lane) bool { return o == l })
		l.place = placeNone
	}
	if e.pause.After(l.pausedUntil) {
		l.pausedUntil, l.pauseStatus = e.pause, e.status
		if e.status != 0 {
			s.tell(l)
		}
	}
	notice = s.learn(l, it, e, now)
	if e.settled {
		it.part.unacked++
	} else {
		s.putBack(l, it)
	}
	if e.undecided && !it.part.stopped {
		s.undecide(l)
	}
	if 2*s.inFlight <= s.cfg.MaxInFlight {
		for waiting, ok := s.waitSlow.pop(); ok; waiting, ok = s.waitSlow.pop() {
			s.back(waiting, now)
		}
	}
	if cause := s.stuck(l, now); cause != "" {
		s.hold(l, cause)
	}
	s.settleIn(l, now)
	next = s.pick(now)
	s.pump(now)
	return next, notice
}

// learn takes an attempt's outcome into the lane's pace, breaker and episode.
func (s *lanes) learn(l *lane, it *item, e ending, now time.Time) *schemas.Notice {
	switch {
	case e.signal == signalSuccess:
		l.pace.succeeded(now.Sub(it.started), l.ep.maxInFlight())
	case e.signal == signalThrottled:
		l.pace.throttled()
	case e.signal.failed():
		l.pace.failed()
	}
	before := l.breaker.state(now)
	tell := l.breaker.settle(it.ticket, e.signal, it.started, now, l.inFlight)
	if tell {
		s.breakerChanged(l, before, l.breaker.state(now))
	}
	var notice *schemas.Notice
	switch {
	case e.disable:
		l.episode.failed(e.result, now) // what the notice tells of
		l.switchOff(it.ep, disabledGone, now)
		s.undecide(l)
		tell = true
	case e.signal == signalSuccess || e.signal == signalThrottled:
		if l.episode.active() && l.disabledAt == 0 {
			notice = l.episode.notice(l.episode.recovered(), it.ep, now)
			l.episode = episode{}
			tell = tell || l.telling.stands || l.telling.dirty
		}
	case e.settled:
		tell = l.episode.failed(e.result, now) || tell
		if l.episode.overdue(now) && s.d.clock.trusted() {
			l.switchOff(it.ep, disabledNoSuccess, now)
			s.undecide(l)
			tell = true
		}
	}
	if notice == nil {
		notice = l.episode.notice(l.episode.due(now), it.ep, now)
	}
	if tell {
		s.tell(l)
	}
	return notice
}

// switchOff disables the endpoint until its configuration is newer than ep.
func (l *lane) switchOff(ep *Endpoint, reason string, now time.Time) {
	l.disabledAt = ep.Version
	l.episode.DisabledVersion, l.episode.DisabledReason, l.episode.DisabledAt = ep.Version, reason, now.UTC()
	if l.episode.FailingSince.IsZero() {
		l.episode.FailingSince = now.UTC()
	}
}

// noticed says that a notice is durable: health remembers it from now on. One whose
// episode has ended meanwhile is not the next episode's.
func (s *lanes) noticed(l *lane, n *schemas.Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.episode.active() && l.episode.FailingSince.Equal(n.FailingSince) {
		l.episode.Notified = append(l.episode.Notified, string(n.Kind))
		s.tell(l)
	}
}

// putBack undoes dequeue; a record of a partition that is gone is given up, and
// whoever owns the partition now reads it again.
func (s *lanes) putBack(l *lane, it *item) {
	it.part.open--
	switch {
	case it.part.stopped:
		it.part.gaveUp(it)
		it.part.checkDrained()
	case it.held != nil:
		s.requeue(l, &l.ahead, it)
	default:
		s.requeue(l, &l.behind, it)
	}
}

// acked ends one piece of work of a partition.
func (s *lanes) acked(p *Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ackedLocked(p)
}

func (s *lanes) ackedLocked(p *Partition) {
	p.open--
	p.unacked--
	if p.unacked < s.cfg.Unsettled {
		s.unblock(p, time.Now())
	}
	p.checkDrained()
	s.signalRoom()
}

// unblock lets lanes go on that waited for the partition's writes.
func (s *lanes) unblock(p *Partition, now time.Time) {
	if len(p.blocked) == 0 {
		return
	}
	blocked := p.blocked
	p.blocked = nil
	for _, l := range blocked {
		s.back(l, now)
	}
	s.pump(now)
}
