package dispatcher

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Partition is one assignment of a partition of deliveries. Take and Drain are
// called by one goroutine, the owner of the assignment; all fields below mu are
// guarded by lanes.mu.
type Partition struct {
	d      *Dispatcher
	number int32
	src    Source

	queued  int     // in lanes
	open    int     // begun and not acknowledged: in flight or being settled
	unacked int     // of those, being settled
	blocked []*lane // lanes that wait for unacked to fall
	stopped bool    // no work of it begins any more; what has begun is told of
	gone    bool    // Drain has returned: whoever owns it next knows better

	claim  int64              // on the partition's hold
	claims []schemas.Claim    // ours and those before it, ascending
	held   map[*lane]struct{} // lanes with records on hold
	toHold map[*item]struct{} // on their way there, and not done in deliveries yet
	askers fifo[*lane]        // lanes that want to read on, in turn
	turns  int                // of its reader so far

	// inHand is what Take is about to claim and offer to a lane. A copy of it that is
	// read from hold meanwhile is neither queued nor sent, and is read again.
	inHand atomic.Pointer[item]

	asked   chan struct{} // has an element while askers has some
	room    chan struct{} // has an element when there may be room again
	drained chan struct{} // closed when stopped and nothing is open

	endReading context.CancelFunc // of hold
	readEnded  chan struct{}      // closed when nobody reads it any more
	strays     bool               // some endpoints that it has on hold are in another partition now; set before the first read
}

// fullFor reports whether no more records of the partition may be taken in now.
func (s *lanes) fullFor(p *Partition) bool {
	return p.queued+p.open >= s.cfg.PartitionOffsets || p.unacked >= s.cfg.Unsettled ||
		s.bytes >= s.cfg.QueuedBytes || s.queued >= s.readAhead()
}

// leastReadAhead keeps a process with few slots from reading one record at a time.
const leastReadAhead = 2_000

// readAhead is how many deliveries may wait in all lanes: what this process sends
// in half the time that a lane's queue may last. Reading faster than that would put
// every lane on hold for want of a faster machine, not for an endpoint's sake.
func (s *lanes) readAhead() int {
	return max(leastReadAhead, 2*s.cfg.MaxInFlight, int(s.meter.rate*s.cfg.LaneTime.Seconds()/2))
}

// awaitRoom blocks while the partition may not take more in. It reports false when
// the assignment has ended.
func (p *Partition) awaitRoom(ctx context.Context) bool {
	s := p.d.lanes
	var overdue *time.Ticker // made by the first wait: a record that finds room costs none
	for {
		s.mu.Lock()
		if p.stopped || s.closed {
			s.mu.Unlock()
			return false
		}
		if s.relieve(p, time.Now()); !s.fullFor(p) {
			s.mu.Unlock()
			return true
		}
		if !slices.Contains(s.full, p) {
			s.full = append(s.full, p)
		}
		s.mu.Unlock()
		if overdue == nil {
			overdue = time.NewTicker(overdueEvery)
			defer overdue.Stop()
		}
		select {
		case <-p.room:
		case <-overdue.C:
		case <-ctx.Done():
			return false
		}
	}
}

// signalRoom wakes the intakes that wait; each looks for itself.
func (s *lanes) signalRoom() {
	for _, p := range s.full {
		select {
		case p.room <- struct{}{}:
		default:
		}
	}
	s.full = s.full[:0]
}

// begin counts work that goes to be settled without passing a lane.
func (p *Partition) begin() {
	s := p.d.lanes
	s.mu.Lock()
	p.open++
	p.unacked++
	s.mu.Unlock()
}

// gaveUp lets go of a delivery that this assignment will not make: its offset is
// not done, and the same attempt may be made later.
func (p *Partition) gaveUp(it *item) {
	p.d.duplicates.forget(it.key)
	if it.held == nil {
		p.src.GiveUp(it.offset)
		return
	}
	l := it.lane
	delete(l.busy, it.offset)
	if h := it.heir; h != nil && h == l.held {
		h.searched = min(h.searched, it.offset) // the assignment that goes on reads it again
	}
}

func (p *Partition) checkDrained() {
	if p.stopped && p.open == 0 {
		select {
		case <-p.drained:
		default:
			close(p.drained)
		}
	}
}

// stop drops what is queued of the partition; what has begun goes on, and health
// hears what comes of it.
func (s *lanes) stop(p *Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.stopped {
		return
	}
	p.stopped = true
	now := time.Now()
	for _, l := range s.byID {
		if l.part != p {
			continue
		}
		for _, q := range []*fifo[*item]{&l.ahead, &l.behind} {
			for q.len() > 0 {
				it, _ := q.pop()
				s.unqueue(it)
				p.gaveUp(it)
			}
		}
		if h := l.held; h != nil && h.tracker != nil && h.tracker.Changes() != h.told {
			l.telling.dirty = true // also what is settled out of order
		}
		if l.telling.dirty && !l.telling.writing {
			s.writeHealth(l, now)
		}
		s.settleIn(l, now)
	}
	p.checkDrained()
	select {
	case p.room <- struct{}{}:
	default:
	}
	s.signalRoom()
}

// end lets go of everything of the partition but the attempts that are open: their
// results are facts. What was on its way to hold is given up now and not at its ack,
// when a later assignment may have gone past it.
func (s *lanes) end(p *Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	p.gone = true
	for it := range p.toHold {
		s.release(it, now)
	}
	clear(p.toHold)
	clear(p.held)
	for _, l := range s.byID {
		if l.part == p {
			l.disown()
			s.settleIn(l, now)
		}
	}
	s.unblock(p, now)
	s.pump(now)
	s.signalRoom()
}

// Drain ends the assignment's work. On a revoke what is queued is dropped and what
// has begun is waited for; on a shutdown (BeginShutdown) it is wound up as Shutdown
// says. It returns when nothing is open or ctx has ended; what is open then goes on
// and its facts reach the Source.
func (p *Partition) Drain(ctx context.Context) {
	if p.d.closing.Load() {
		p.d.windUp()
		select {
		case <-p.d.woundUp:
		case <-ctx.Done():
		}
	}
	p.d.lanes.stop(p)
	p.endReading()
	defer p.d.lanes.end(p)
	defer func() { <-p.readEnded }() // it ends as soon as its read does, which our context ends
	select {
	case <-p.drained:
	case <-ctx.Done():
	}
}
