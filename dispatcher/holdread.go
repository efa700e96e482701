package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/milena-project/milena/schemas"
)

// HoldChunk is what one read of hold returned.
type HoldChunk struct {
	Records []schemas.Record
	Next    int64 // everything below it was read
	Bytes   int   // that the read cost
}

// holdRate bounds what a process reads from hold, in bytes a second; holdTurn what
// one turn may cost. A lane begins with holdFirst: it doubles while the lane wants more
// than a turn gave it, and shrinks to what the lane had room for, so that a slow
// endpoint's records are not read a hundred times for a few that can be sent soon.
const (
	holdRate  = 64 << 20
	holdTurn  = 8 << 20
	holdFirst = 32 << 10
)

// errHoldShort: the log ends before records that were acknowledged or that health
// speaks of. A new leader may know of them a moment later; if not, the broker lost them.
var errHoldShort = errors.New("hold ends before the records that stand on it")

// holdRetry is how long the reader waits after a read that failed.
const holdRetry = 250 * time.Millisecond

// readHold serves the lanes of one assignment that have records on hold and could
// send them. The lane whose turn it is names where the read begins; every other
// lane whose place lies in what was read is served from it too.
func (p *Partition) readHold(ctx context.Context) {
	s := p.d.lanes
	for {
		l, from, size := s.nextAsker(p)
		if l == nil {
			select {
			case <-ctx.Done():
				return
			case <-p.asked:
				continue
			}
		}
		chunk, err := p.d.HoldLog.ReadHold(ctx, p.number, from, size)
		if err == nil && chunk.Next <= from {
			err = errHoldShort
		}
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			p.d.Logger.Warn("hold cannot be read; what is on it waits", "partition", p.number, "offset", from, "err", err)
			s.askAgain(l)
			if !sleep(ctx, holdRetry) {
				return
			}
			continue
		}
		p.serve(l, from, chunk)
		if p.d.Hooks.HoldRead != nil {
			p.d.Hooks.HoldRead(chunk.Bytes)
		}
		if p.d.holdPace.WaitN(ctx, min(chunk.Bytes, holdTurn)) != nil {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// wants reports whether the lane should read on: it can send, and what it has in
// memory would be gone soon.
func (s *lanes) wants(l *lane, now time.Time) bool {
	h := l.held
	return h != nil && h.unread() && l.anchor >= 0 && !l.part.stopped && !l.undecided && !l.pausedUntil.After(now) &&
		!l.breaker.open(now) && s.wait(l, l.ahead.len(), now) < s.cfg.LaneTime/2 && l.oldest(now) <= s.cfg.LaneTime &&
		(l.breaker.closed() || l.ahead.len() == 0) && !s.fullForHeld(l, now)
}

// fullForHeld reports whether memory is too short to read more of the lane's records, or
// its tenant has enough in memory. A lane that has none in memory may always read one:
// what waits behind them takes up memory too, and goes only when they are gone.
func (s *lanes) fullForHeld(l *lane, now time.Time) bool {
	return l.ahead.len()+l.inFlight > 0 && (s.bytes >= s.cfg.QueuedBytes || s.tenantWait(l, now) > s.cfg.LaneTime/2)
}

func (s *lanes) ask(l *lane) {
	if l.held.asked {
		return
	}
	l.held.asked = true
	l.part.askers.push(l)
	select {
	case l.part.asked <- struct{}{}:
	default:
	}
}

func (s *lanes) askAgain(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.held != nil {
		s.ask(l)
	}
}

// nextInTurn takes a lane out of the line: its head, or (behind) the one whose place is
// furthest behind. Every other turn is for that one. Endpoints that recover one after
// another are at as many places, and each would read the whole of hold for itself; so
// it catches up with those before it, and from then on one read serves them all.
func (p *Partition) nextInTurn(behind bool, now time.Time) (*lane, bool) {
	s := p.d.lanes
	if !behind || p.askers.len() < 2 {
		return p.askers.pop()
	}
	var last *lane
	for _, l := range p.askers.all() {
		if l.held != nil && l.part == p && (last == nil || l.held.searched < last.held.searched) && s.wants(l, now) {
			last = l
		}
	}
	if last == nil {
		return p.askers.pop()
	}
	return p.askers.remove(func(l *lane) bool { return l == last })
}

// nextAsker returns the lane whose turn it is, where its unread records begin and how
// many bytes it should read.
func (s *lanes) nextAsker(p *Partition) (l *lane, from int64, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	p.turns++
	for first := p.turns%2 == 0; ; first = false {
		next, ok := p.nextInTurn(first, now)
		if !ok {
			return nil, 0, 0
		}
		h := next.held
		if h == nil || next.part != p {
			continue
		}
		h.asked = false
		if s.wants(next, now) {
			h.turn = max(h.turn, holdFirst)
			return next, h.searched, h.turn
		}
	}
}

// serve hands what was read to the lanes that can use it, and notes for each how
// far it has been searched. asker is the lane whose turn it was.
func (p *Partition) serve(asker *lane, from int64, chunk HoldChunk) {
	s := p.d.lanes
	var settle []func()
	s.mu.Lock()
	now := time.Now()
	served := map[*lane]bool{}
	for l := range p.held {
		if h := l.held; h != nil && l.part == p && h.tracker != nil && h.searched >= from && h.searched < chunk.Next && s.wants(l, now) {
			served[l] = true
		}
	}
	for i := range chunk.Records {
		rec := &chunk.Records[i]
		l := s.byID[string(rec.Key)]
		if p.strays && (l == nil || l.part != p) {
			l = s.byID[strayKey(string(rec.Key), p.number)]
		}
		if l == nil || !served[l] || rec.Offset < l.held.searched {
			continue
		}
		if s.wait(l, l.ahead.len(), now) >= s.cfg.LaneTime || s.fullForHeld(l, now) || (!l.breaker.closed() && l.ahead.len() > 0) {
			l.held.searched = rec.Offset
			delete(served, l)
			continue
		}
		f, again := s.ingest(l, rec, now)
		if again {
			l.held.searched = rec.Offset
			delete(served, l)
		}
		if f != nil {
			settle = append(settle, f)
		}
	}
	for l := range served {
		l.held.searched = max(l.held.searched, chunk.Next)
	}
	if h := asker.held; h != nil && asker.part == p {
		h.turn = nextTurn(h.turn, chunk.Bytes, float64(h.searched-from)/float64(chunk.Next-from))
	}
	for l := range p.held {
		if l.held != nil && l.part == p { // else a later assignment has it already
			s.leaveHold(l, l.held)
			s.settleIn(l, now)
		}
	}
	s.pump(now)
	s.mu.Unlock()
	for _, f := range settle {
		f()
	}
}

// nextTurn is how many bytes a lane should read after a turn of so many, of which it
// could use a part.
func nextTurn(turn, read int, used float64) int {
	if used >= 1 {
		return min(2*turn, holdTurn)
	}
	return max(holdFirst, min(turn, int(2*used*float64(read))))
}

// ingest takes one record of hold into its lane. It returns what is to be done once
// the lock is free, if the record ends here; or again: nothing can be said of it at
// this moment, and it has to be read once more.
func (s *lanes) ingest(l *lane, rec *schemas.Record, now time.Time) (ends func(), again bool) {
	h, p := l.held, l.part
	fresh := h.tracker.Received(rec.Offset)
	if fresh && rec.Offset >= h.before && h.ahead > 0 && rec.Offset <= h.last {
		h.ahead--
	}
	if !h.tracker.Open(rec.Offset) {
		return nil, false // settled; read again after a drop
	}
	if h.settledBefore(rec.Offset) {
		h.tracker.Done(rec.Offset)
		return nil, false
	}
	if o := l.busy[rec.Offset]; o != nil {
		if o.held != h {
			o.heir = h // its attempt began under an assignment of before
		}
		return nil, false
	}
	it := &item{part: p, offset: rec.Offset, lane: l, held: h, heldAt: rec.Timestamp.UnixMilli()}
	var err error
	it.d, err = schemas.ParseDelivery(*rec)
	it.d.Own() // what was read is many endpoints' records; keeping one must not keep all
	open := func() { p.open++; p.unacked++ }
	switch {
	case !p.valid(rec.Offset, it.d.Claim):
		// Appended by an owner that had lost the partition: its record of deliveries
		// was not done, and is with us.
		s.unheld()
		h.tracker.Done(rec.Offset)
		return nil, false
	case err != nil:
		open()
		l.take(it)
		it.d.Error = schemas.CleanError(err.Error())
		return func() { p.d.bury(it, schemas.ReasonMalformed, nil) }, false
	case now.Sub(it.d.Enqueued) > l.ep.maxAge(s.cfg.MaxAge) && s.d.clock.trusted():
		open()
		l.take(it)
		return func() { p.d.bury(it, schemas.ReasonExpired, nil) }, false
	}
	l.take(it)
	it.d.Claim = 0
	it.key = s.d.duplicates.key(&it.d)
	it.ready = readySince(&it.d, rec.Timestamp, now)
	if !s.d.duplicates.claim(it.key) {
		queued, ok := l.behind.remove(func(o *item) bool { return o.key == it.key })
		if o := p.inHand.Load(); !ok && o != nil && o.key == it.key {
			delete(l.busy, it.offset)
			return nil, true
		}
		open()
		if !ok { // it was sent
			return func() { p.duplicate(it) }, false
		}
		// Of two queued copies the one from hold stays, for the order's sake.
		s.unqueue(queued)
		s.enqueue(l, &l.ahead, it)
		return func() { p.duplicate(queued) }, false
	}
	s.enqueue(l, &l.ahead, it)
	return nil, false
}

// take notes that a record of hold is in memory.
func (l *lane) take(it *item) {
	if l.busy == nil {
		l.busy = map[int64]*item{}
	}
	l.busy[it.offset] = it
}

// settledBefore reports whether the last owner had settled a record out of order.
func (h *held) settledBefore(offset int64) bool {
	for _, r := range h.done {
		if r[0] <= offset && offset < r[1] {
			return true
		}
	}
	return false
}

// valid reports whether a record of hold counts: it was appended before the claim
// after its own took the end of hold.
func (p *Partition) valid(offset, claim int64) bool {
	for _, c := range p.claims { // ascending, ours last
		if c.Number > claim {
			return offset < c.HoldEnd
		}
	}
	return true
}
