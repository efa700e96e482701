package dispatcher

import (
	"time"

	"github.com/milena-project/milena/schemas"
)

// telling is the state of an endpoint's health record. One write of an endpoint is
// under way at a time, so that the last one written is the truest, and at most one
// begins a second. It is guarded by lanes.mu.
type telling struct {
	stands  bool // a record, not a tombstone, stands in health as far as we know
	writing bool
	dirty   bool // something moved since the last write began
	began   time.Time
	timer   *time.Timer
	held    int // what the last record said is on hold
}

// tellEvery is how often an endpoint's health record is written at most.
const tellEvery = time.Second

// tell says that an endpoint's health has changed. What waits for it to begin its
// time on hold is written at once.
func (s *lanes) tell(l *lane) {
	t := &l.telling
	if l.part.gone {
		return
	}
	t.dirty = true
	if t.writing {
		return // the ack of the write under way comes back here
	}
	now := time.Now()
	if after := tellEvery - now.Sub(t.began); after > 0 && !l.anchoring() && !l.part.stopped {
		if t.timer == nil {
			part := l.part
			t.timer = time.AfterFunc(after, func() { s.tellLater(l, part) })
		}
		return
	}
	s.writeHealth(l, now)
}

// anchoring reports whether deliveries wait for health to say where hold begins.
func (l *lane) anchoring() bool { return l.held != nil && len(l.held.waiting) > 0 }

func (s *lanes) tellLater(l *lane, part *Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.part != part || part.gone {
		return
	}
	l.telling.timer = nil
	if l.telling.dirty {
		s.tell(l)
	}
	now := time.Now()
	s.settleIn(l, now)
	s.pump(now)
}

// writeHealth writes the record as it is now, or a tombstone when all is well.
func (s *lanes) writeHealth(l *lane, now time.Time) {
	t := &l.telling
	t.dirty = false
	rec := s.healthOf(l, now)
	if rec == nil && !t.stands {
		l.anchor = -1
		return
	}
	part, next := l.part, int64(-1)
	if rec != nil && rec.Next != nil {
		next = *rec.Next
	}
	t.writing, t.began, t.stands = true, now, rec != nil
	if next < 0 {
		l.anchor = -1 // once it is written, health leads nobody to hold
	}
	part.open++
	s.d.HoldLog.WriteHealth(part.number, part.claim, l.id, rec, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		part.open--
		s.told(l, part, next)
		part.checkDrained()
	})
}

// told lets go of the deliveries whose place on hold is now known for good.
func (s *lanes) told(l *lane, part *Partition, next int64) {
	if l.part != part || part.gone {
		return // another assignment may have begun; it has read health itself
	}
	t := &l.telling
	t.writing = false
	l.anchor = next
	if h := l.held; h != nil && next >= 0 {
		waiting := h.waiting
		h.waiting = nil
		for _, it := range waiting { // at or behind next; one before it is settled already
			s.heldDone(it)
		}
		s.leaveHold(l, h)
	}
	if t.dirty || l.anchoring() {
		s.tell(l)
	}
	now := time.Now()
	s.settleIn(l, now)
	s.pump(now)
}

// healthOf is what the next owner must know; nil when there is nothing.
func (s *lanes) healthOf(l *lane, now time.Time) *schemas.Health {
	rec := schemas.Health{Claim: l.part.claim, Version: l.version, Written: now.UnixMilli()}
	if h := l.held; h != nil && h.tracker != nil {
		next, last := h.tracker.Watermark(), h.last
		rec.Next, rec.Last, rec.Held = &next, &last, h.count()
		rec.HeldSince = h.since.UnixMilli()
		l.telling.held = rec.Held
		h.told = h.tracker.Changes()
		for from, to := range h.tracker.EachDone {
			if len(rec.Done) == mostDone {
				break
			}
			rec.Done = append(rec.Done, [2]int64{from, to})
		}
	}
	if l.episode.active() || !l.breaker.closed() {
		e := l.episode.Episode
		e.BreakerStep, e.OpenUntil = l.breaker.step, l.breaker.until.UTC()
		rec.Since = &e
	}
	if l.pausedUntil.After(now) && l.pauseStatus != 0 {
		rec.Paused = &schemas.Pause{Until: l.pausedUntil.UTC(), Status: l.pauseStatus, Version: l.version}
	}
	if rec.Next == nil && rec.Since == nil && rec.Paused == nil {
		return nil
	}
	return &rec
}

// mostDone is how many ranges that are settled out of order a health record tells
// of. They save repeats, and nothing depends on them.
const mostDone = 32

// Appending to hold changes nothing that the next owner must know; that it does to how
// much is held is told to people every tellHeldEvery, of at most tellHeldMost endpoints
// at a time.
const (
	tellHeldEvery = 15 * time.Second
	tellHeldMost  = 100
)

// tellHeld brings health records up to date that say another count than what is on hold.
func (s *lanes) tellHeld() {
	now, told := time.Now(), 0
	s.each(func(l *lane) {
		if told < tellHeldMost && l.held != nil && l.telling.stands && now.Sub(l.telling.began) >= tellHeldEvery && l.held.count() != l.telling.held {
			s.tell(l)
			told++
		}
	})
}

// retellEvery is how often every health record is written again. One that a process
// wrote which had lost the partition is ignored by readers, but the log's compaction
// knows nothing of that: within its lag of an hour ours has to be the last again.
const retellEvery = 30 * time.Minute

func (s *lanes) retell() {
	s.each(func(l *lane) {
		if l.telling.stands {
			s.tell(l)
		}
	})
}
