package retrytopics

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/milena-project/milena/schemas"
)

// assignment is what a span needs of a *consume.Assignment.
type assignment interface {
	Done(offset int64)
	GiveUp(offset int64)
}

// span is the intake of one tier partition for as long as it is assigned. Take has
// one caller, which it may keep waiting for a day: only that partition stands still.
type span struct {
	r     *Releaser
	a     assignment
	topic string
	tier  time.Duration // the delay in the topic's name; 0 where it has none

	// readyAt is when the record that Take is busy with was or will be ready, unix
	// ms; 0: none. It is what "oldest overdue" is read from.
	readyAt atomic.Int64

	mu     sync.Mutex
	open   int           // taken, and neither done nor given up
	closed bool          // Drain has begun
	idle   chan struct{} // made by Drain, closed when nothing is open
}

// Take lets the records through in offset order, each when its hop is over.
// In a tier all have waited the same time, so the head is the first to be ready.
func (s *span) Take(ctx context.Context, recs []schemas.Record) {
	read := time.Now()
	s.measureSkew(recs)
	defer s.readyAt.Store(0)
	for i := range recs {
		if !s.one(ctx, &recs[i], read) {
			for _, rest := range recs[i:] {
				s.a.GiveUp(rest.Offset)
			}
			return
		}
	}
}

// one sees one record on its way, or returns false when ctx ended first.
func (s *span) one(ctx context.Context, rec *schemas.Record, read time.Time) bool {
	d, err := schemas.ParseDelivery(*rec)
	it := held{due: d.NotBefore.UnixMilli(), size: sizeOf(&d), span: s, offset: rec.Offset, d: &d}
	if err != nil {
		return s.bury(ctx, it)
	}
	s.readyAt.Store(max(d.HopUntil.UnixMilli(), 1))
	// A record that was read has been in its tier since before that: when a whole
	// delay has passed since, it is ready whatever its mover's clock had said.
	// Without this, one mover whose clock was a year ahead for a moment stops the
	// partition for a year. To move on early costs a write and makes nothing early,
	// for not-before is asked at every step.
	if !s.r.clock.wait(ctx, nil, d.HopUntil, s.tier-time.Since(read)) {
		return false
	}
	for {
		// The channel is asked for before the wall, as clock.jump says.
		jump := s.r.clock.jump()
		left := d.NotBefore.Sub(s.r.clock.wall())
		if left <= 0 || left > Near {
			return s.move(ctx, it)
		}
		s.begin()
		if it.d == &d {
			it.d = compact(&d)
		}
		ok, room := s.r.near.put(it)
		if ok {
			return true
		}
		s.end()
		s.readyAt.Store(it.due)
		// Memory is full of what is due in the next seconds. What is behind waits
		// and counts as overdue; this one goes without memory once it is due.
		timer := time.NewTimer(max(left, time.Millisecond))
		select {
		case <-room:
		case <-timer.C:
		case <-jump:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// move writes what is due, or still far away, as soon as the bound on writes in
// flight lets it.
func (s *span) move(ctx context.Context, it held) bool {
	if !s.r.inFlight.Acquire(ctx, it.inFlight()) {
		return false
	}
	s.begin()
	s.r.write(it)
	return true
}

// bury hands an unreadable record over: it cannot go back as it is, for what stands
// on deliveries would be read as new.
func (s *span) bury(ctx context.Context, it held) bool {
	if !s.r.inFlight.Acquire(ctx, it.inFlight()) {
		return false
	}
	s.begin()
	s.r.cfg.DeadLetter.DeadLetter(it.d, schemas.ReasonMalformed, func() { s.r.settle(it, nil) })
	return true
}

// Drain drops what waits in memory, to be read again by whoever is next, and waits
// for the writes that are on their way.
func (s *span) Drain(ctx context.Context) {
	// Take has returned, so nothing is put in any more.
	for _, it := range s.r.near.takeIf(func(it *held) bool { return it.span == s }) {
		s.giveUp(it.offset)
	}
	s.mu.Lock()
	s.closed = true
	idle := make(chan struct{})
	s.idle = idle
	if s.open == 0 {
		close(idle)
		s.idle = nil
	}
	s.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	s.r.forget(s)
}

func (s *span) begin() {
	s.mu.Lock()
	s.open++
	s.mu.Unlock()
}

func (s *span) end() {
	s.mu.Lock()
	s.open--
	if s.open == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
	s.mu.Unlock()
}

func (s *span) done(offset int64) {
	s.a.Done(offset)
	s.end()
}

func (s *span) giveUp(offset int64) {
	s.a.GiveUp(offset)
	s.end()
}

// isClosed: what came out of memory and was not written yet is not written any more.
func (s *span) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// skewFresh: what was parked longer ago says nothing about the clocks of now.
const skewFresh = time.Minute

// measureSkew compares the time at which a record was parked by its mover's clock
// with the broker's time of append. It takes the first fresh record of a batch.
func (s *span) measureSkew(recs []schemas.Record) {
	if len(s.r.skewHooks) == 0 && s.r.skewQuiet() {
		return
	}
	for i := range recs {
		d, err := schemas.ParseDelivery(recs[i])
		if err != nil || d.HopUntil.IsZero() {
			continue
		}
		parked := d.HopUntil.Add(-s.tier)
		if s.r.clock.wall().Sub(parked).Abs() < skewFresh {
			s.r.skew(recs[i].Timestamp.Sub(parked))
		}
		return
	}
}

// heldOverhead is what an item costs beside its bytes: the structs, the heap's slot
// and the allocator's rounding, measured as about 900 bytes.
const heldOverhead = 1 << 10

// writeOverhead comes on top while a delivery is being written: its headers twice,
// once as they are and once as the client holds them.
const writeOverhead = 2 << 10

// inFlight is what counts against the bound of writes in flight.
func (it *held) inFlight() int64 { return it.size + writeOverhead }

func sizeOf(d *schemas.Delivery) int64 {
	e := &d.Event
	n := heldOverhead + len(d.EndpointID) + len(d.Payload) + len(d.Error) + len(d.Origin.Topic) + len(e.ID) + len(e.Source) +
		len(e.Type) + len(e.Subject) + len(e.ContentType) + len(d.Traceparent) + len(d.Tracestate) + len(d.Trace)
	for _, h := range d.Extra {
		n += len(h.Key) + len(h.Value) + 40
	}
	return int64(n)
}

// compact copies what still shares memory with the fetched batch: one small record
// in memory must not keep a whole batch there.
func compact(d *schemas.Delivery) *schemas.Delivery {
	c := *d
	c.Own()
	return &c
}
