package dispatcher

import (
	"time"

	"github.com/milena-project/milena/internal/offsets"
)

// held is what an endpoint has in the hold topic, from its first append until all
// of it is settled. It is guarded by lanes.mu.
//
// Going by offset, what the endpoint has on hold is first settled (below the
// tracker's watermark, or known to it), then in memory (lane.ahead or in flight),
// then unread (at or above searched), and last appending: written, not acknowledged.
type held struct {
	tracker  *offsets.Tracker // of what was read from hold; nil until the first append is acknowledged
	searched int64            // everything of the endpoint below it was read
	done     [][2]int64       // ranges of it that the last owner had settled
	told     uint64           // tracker.Changes() as of the last health record
	last     int64            // its last record that may exist; -1: none

	appending int       // appends that are not acknowledged
	ahead     int       // records above searched that we appended ourselves
	before    int64     // end of hold at the takeover: below it there is more than we appended
	guess     int       // how much more, as of the health record of the last owner
	waiting   []*item   // appended, and done once health says where to begin
	taking    bool      // fresh records are appended; false: what is left is worked off
	asked     bool      // stands in its partition's line for the reader
	turn      int       // bytes that its next read should be of; 0: none was made
	since     time.Time // when what has been there longest was put there; later than that where it was not read yet
}

// exact reports whether all that an earlier owner appended has been read.
func (h *held) exact() bool { return h.searched >= h.before }

// unread reports whether records of the endpoint may be left that were not read.
func (h *held) unread() bool { return h.tracker != nil && h.searched <= h.last }

// inLog reports whether records stand or may come in the log that were not read.
func (h *held) inLog() bool { return h.appending > 0 || h.unread() }

// empty reports whether nothing of the endpoint is left on hold.
func (h *held) empty() bool {
	return !h.inLog() && len(h.waiting) == 0 && (h.tracker == nil || h.tracker.Unsettled() == 0)
}

// count is how many records are left on hold, as far as we know.
func (h *held) count() int {
	n := h.appending + h.ahead
	if h.tracker != nil {
		n += h.tracker.Unsettled()
	}
	if !h.exact() {
		n += h.guess
	}
	return n
}

// HoldCause says why a delivery was put on hold.
type HoldCause string

const (
	HoldBreaker HoldCause = "breaker" // the endpoint's breaker is open
	HoldPaused  HoldCause = "paused"  // a Retry-After has not passed
	HoldLong    HoldCause = "long"    // it would not start within Config.LaneTime
	HoldMemory  HoldCause = "memory"  // its lane was the longest when memory ran short
	HoldUnknown HoldCause = "unknown" // the registry did not answer
)

// stuck says why the lane cannot start anything within the time that its queue may
// last; "" if it can.
func (s *lanes) stuck(l *lane, now time.Time) HoldCause {
	soon := now.Add(s.cfg.LaneTime)
	switch {
	case l.breaker.open(soon):
		return HoldBreaker
	case l.breaker.probing && l.oldest(now) > 0:
		return HoldBreaker
	case l.pausedUntil.After(soon):
		return HoldPaused
	}
	return ""
}

// place puts a fresh delivery into behind, or on hold with all of behind before it.
func (s *lanes) placeFresh(l *lane, it *item, now time.Time) {
	s.enqueue(l, &l.behind, it)
	if cause := s.tooLong(l, now); cause != "" {
		s.hold(l, cause)
	}
}

func (s *lanes) tooLong(l *lane, now time.Time) HoldCause {
	if cause := s.stuck(l, now); cause != "" {
		return cause
	}
	h := l.held
	left := l.behind.len()
	if h != nil {
		left += h.count()
	}
	if max(s.wait(l, left, now), s.tenantWait(l, now)) > s.cfg.LaneTime || (h != nil && h.taking && !h.exact()) {
		return HoldLong
	}
	if h != nil {
		h.taking = false // from now on what is left only shrinks
	}
	return ""
}

// hold appends the whole of behind to hold, in order and never a part of it. Until
// tooLong says otherwise the endpoint's fresh records follow it there. A process
// that may have lost the partition holds nothing: what it appends would not count.
func (s *lanes) hold(l *lane, cause HoldCause) {
	if l.behind.len() == 0 || l.part.stopped || !l.part.src.Owned() {
		return
	}
	if l.held == nil {
		l.held = &held{last: -1, since: time.Now()}
		l.part.held[l] = struct{}{}
	}
	l.held.taking = true
	for l.behind.len() > 0 {
		it := s.dequeue(&l.behind)
		it.part.unacked++
		s.append(l, it, cause)
	}
}

// append writes one delivery to hold. Its key is forgotten as this is decided: it
// comes back as the same attempt.
func (s *lanes) append(l *lane, it *item, cause HoldCause) {
	h := l.held
	h.appending++
	it.part.toHold[it] = struct{}{}
	s.d.duplicates.forget(it.key)
	if s.d.Hooks.Held != nil {
		s.d.Hooks.Held(cause)
	}
	s.d.HoldLog.Append(it.part.number, it.part.claim, &it.d, func(offset int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.appended(l, h, it, offset)
	})
}

// appended notes that a record is durable on hold. Acks come in the order of their
// offsets. A record is done in deliveries only when health tells where on hold the
// endpoint's records begin:
//
//	append → ack → [crash: deliveries has it still; what stands on hold is ignored]
//	  → health{next} → ack → [crash: the next owner reads it from hold; a copy from
//	  deliveries is held behind it, and dropped as a duplicate] → done
func (s *lanes) appended(l *lane, h *held, it *item, offset int64) {
	h.appending--
	if it.part.gone {
		return // given up
	}
	now := time.Now()
	if offset < 0 { // it ended as a dead letter
		s.unheld()
		s.heldDone(it)
		s.leaveHold(l, h)
		s.settleIn(l, now)
		s.pump(now)
		return
	}
	if h.tracker == nil {
		h.tracker, h.searched = offsets.NewTracker(offset), offset
	}
	h.last = max(h.last, offset)
	if offset >= h.searched {
		h.ahead++ // else the reader was faster than the ack
	}
	if l.anchor >= 0 { // at or below it; or above, and it was read and settled before this ack
		s.heldDone(it)
	} else {
		h.waiting = append(h.waiting, it)
		s.tell(l)
	}
	s.settleIn(l, now)
	s.pump(now)
}

// heldDone ends a delivery's time in deliveries: hold has it now.
func (s *lanes) heldDone(it *item) {
	delete(it.part.toHold, it)
	it.part.src.DoneHere(it.offset)
	s.ackedLocked(it.part)
}

// unheld counts a delivery that left hold.
func (s *lanes) unheld() {
	if s.d.Hooks.Unheld != nil {
		s.d.Hooks.Unheld()
	}
}

// release gives a delivery up whose partition is gone.
func (s *lanes) release(it *item, now time.Time) {
	s.unheld()
	it.part.open--
	it.part.unacked--
	it.part.gaveUp(it)
	s.unblock(it.part, now)
	it.part.checkDrained()
}

// settledHeld notes that a delivery that was read from hold is settled.
func (s *lanes) settledHeld(it *item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := it.lane
	delete(l.busy, it.offset)
	s.unheld()
	for _, h := range []*held{it.held, it.heir} {
		if h == nil {
			continue
		}
		before := h.tracker.Watermark()
		h.tracker.Done(it.offset)
		if l.held == h && (h.tracker.Watermark() != before || l.part.stopped) {
			s.tell(l)
		}
		if next := l.busy[h.tracker.Watermark()]; next != nil && next.heldAt != 0 {
			h.since = time.UnixMilli(next.heldAt)
		}
		s.leaveHold(l, h)
	}
	s.ackedLocked(it.part)
	now := time.Now()
	s.settleIn(l, now)
	s.pump(now)
}

// leaveHold ends the held state once nothing of the endpoint is left there.
func (s *lanes) leaveHold(l *lane, h *held) {
	if l.held == h && h.empty() && l.ahead.len() == 0 {
		l.held = nil
		delete(l.part.held, l)
		s.tell(l)
	}
}

// dropAhead forgets what was read from hold and has not begun; it is read again
// when it can be sent.
func (s *lanes) dropAhead(l *lane) {
	for l.ahead.len() > 0 {
		it := s.dequeue(&l.ahead)
		it.part.open--
		l.held.searched = min(l.held.searched, it.offset)
		delete(l.busy, it.offset)
		s.d.duplicates.forget(it.key)
	}
}
