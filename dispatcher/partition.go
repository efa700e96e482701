package dispatcher

import "context"

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
	stopped bool    // no work of it begins any more

	room    chan struct{} // has an element when there may be room again
	drained chan struct{} // closed when stopped and nothing is open
}

// full reports whether no more records of the partition may be taken in now.
func (s *lanes) fullFor(p *Partition) bool {
	return p.queued+p.open >= s.cfg.PartitionOffsets || p.unacked >= s.cfg.Unsettled || s.bytes >= s.cfg.QueuedBytes
}

// awaitRoom blocks while the partition may not take more in. It reports false when
// the assignment has ended.
func (p *Partition) awaitRoom(ctx context.Context) bool {
	s := p.d.lanes
	for {
		s.mu.Lock()
		if p.stopped || s.closed {
			s.mu.Unlock()
			return false
		}
		if !s.fullFor(p) {
			s.mu.Unlock()
			return true
		}
		s.full = append(s.full, p)
		s.mu.Unlock()
		select {
		case <-p.room:
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
	p.src.GiveUp(it.offset)
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

// stop drops what is queued of the partition; what has begun goes on.
func (s *lanes) stop(p *Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.stopped {
		return
	}
	p.stopped = true
	for _, l := range s.byID {
		if l.part != p {
			continue
		}
		for _, it := range l.behind.drain() {
			s.bytes -= it.size()
			s.queued--
			p.queued--
			p.gaveUp(it)
		}
	}
	p.checkDrained()
	select {
	case p.room <- struct{}{}:
	default:
	}
	s.signalRoom()
}

// Drain ends the assignment's work. On a revoke what is queued is dropped and what
// has begun is waited for; on a shutdown (BeginShutdown) it is wound up as Shutdown
// says. It returns when nothing is open or ctx has ended; what is open then goes on
// and its facts reach the Source.
func (p *Partition) Drain(ctx context.Context) {
	if p.d.closing.Load() {
		p.d.windUp(ctx)
	}
	p.d.lanes.stop(p)
	select {
	case <-p.drained:
	case <-ctx.Done():
	}
}
