package consume

import (
	"sync"

	"github.com/milena-project/milena/internal/offsets"
	"github.com/milena-project/milena/schemas"
)

// ledger is what this process knows of one partition, across assignments. At most
// one assignment is its current one.
type ledger struct {
	mu      sync.Mutex
	topicID [16]byte // the facts are about that topic; a new one has none
	current *Assignment
	facts   facts
}

// position makes the assignment current, with base as its first offset, and tells
// it what is known of the records from there on: from earlier assignments of this
// process, and from the metadata of the commit at which it begins.
func (l *ledger) position(a *Assignment, topicID [16]byte, base, committed int64, settled offsets.Set) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.topicID != topicID {
		l.facts = facts{}
	}
	l.topicID, l.current = topicID, a
	l.facts.dropBelow(base)
	for _, r := range settled {
		l.facts.settled.Add(max(r.From, base), r.To)
	}
	a.topicID, a.base, a.taken, a.committed = topicID, base, base, committed
	a.tracker = offsets.NewTracker(base)
}

// receive takes polled records, in offset order, and reports whether fetching should
// pause. The records belong to the assignment: ownership.accept has checked that, but it
// may have ended since. Those that are known to be done are not queued.
func (l *ledger) receive(a *Assignment, recs []schemas.Record, control func(i int) bool, limits *limits) (full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.closing {
		return false
	}
	fresh := recs[:0]
	for i := range recs {
		rec := recs[i]
		if !a.tracker.Received(rec.Offset) {
			continue // read again after a seek; it is tracked already
		}
		a.noteAge(rec.Offset, rec.Timestamp)
		switch {
		case control(i), l.facts.settled.Has(rec.Offset):
			a.tracker.Done(rec.Offset)
		case l.goesOn(rec.Offset):
			if a.adopted == nil {
				a.adopted = make(map[int64]schemas.Record)
			}
			a.adopted[rec.Offset] = rec
		default:
			fresh = append(fresh, rec)
			a.queued += size(&rec)
		}
	}
	if len(fresh) > 0 {
		a.push(fresh)
	}
	if !a.behind && (a.queued >= limits.queueBytes || a.tracker.Unsettled() >= limits.unsettled) {
		a.behind = true
	}
	return a.behind
}

// reads returns the offset that is read next.
func (l *ledger) reads(a *Assignment) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return a.tracker.Next()
}

func (l *ledger) isBehind(a *Assignment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return a.behind
}

func (l *ledger) goesOn(offset int64) bool {
	_, ok := l.facts.open[offset]
	return ok
}

// push appends a batch to the queue; led.mu is held.
func (a *Assignment) push(recs []schemas.Record) {
	a.queue = append(a.queue, recs)
	select {
	case a.more <- struct{}{}:
	default:
	}
}

// next takes the next batch for Take, nil when there is none or the assignment
// closes. From here on its records are begun: what is open of them at the end stays
// open. It also returns whether fetching, paused before, may go on.
func (l *ledger) next(a *Assignment) (recs []schemas.Record, eased bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.closing || len(a.queue) == 0 {
		return nil, false
	}
	recs, a.queue[0] = a.queue[0], nil
	a.queue = a.queue[1:]
	for i := range recs {
		a.queued -= size(&recs[i])
		delete(a.requeued, recs[i].Offset)
	}
	a.taken = max(a.taken, recs[len(recs)-1].Offset+1)
	return recs, a.ease()
}

// ease reports, once, that a paused assignment has room again; led.mu is held.
func (a *Assignment) ease() bool {
	l := &a.own.limits
	if !a.behind || a.queued > l.queueBytes/2 || a.tracker.Unsettled() > l.unsettled*3/4 {
		return false
	}
	a.behind = false
	return true
}

// done marks an offset for whoever owns the partition now.
func (l *ledger) done(a *Assignment, offset int64) {
	l.mu.Lock()
	eased := false
	defer func() {
		l.mu.Unlock()
		if eased {
			a.own.wake()
		}
	}()
	if !a.ended {
		a.tracker.Done(offset)
		eased = a.ease()
		return
	}
	if a.topicID != l.topicID {
		return // of a topic that was deleted since
	}
	delete(l.facts.open, offset)
	l.facts.settled.Add(offset, offset+1)
	if cur := l.current; cur != nil && cur.tracker.Done(offset) {
		delete(cur.adopted, offset)
		if eased = cur.ease(); eased {
			a = cur
		}
	}
}

// doneHere marks an offset for this assignment only.
func (l *ledger) doneHere(a *Assignment, offset int64) {
	l.mu.Lock()
	if a.ended {
		l.mu.Unlock()
		l.giveUp(a, offset)
		return
	}
	if a.here == nil {
		a.here = make(map[int64]struct{})
	}
	a.here[offset] = struct{}{}
	a.tracker.Done(offset)
	eased := a.ease()
	l.mu.Unlock()
	if eased {
		a.own.wake()
	}
}

// giveUp forgets that an offset was begun.
func (l *ledger) giveUp(a *Assignment, offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !a.ended {
		if a.givenUp == nil {
			a.givenUp = make(map[int64]struct{})
		}
		a.givenUp[offset] = struct{}{}
		return
	}
	if a.topicID != l.topicID {
		return
	}
	delete(l.facts.open, offset)
	cur := l.current
	if cur == nil {
		return
	}
	// The partition came back and read the record while the earlier assignment was
	// still at work on it: now it is this one's to do.
	rec, ok := cur.adopted[offset]
	if !ok || cur.closing {
		return
	}
	delete(cur.adopted, offset)
	if cur.requeued == nil {
		cur.requeued = make(map[int64]struct{})
	}
	cur.requeued[offset] = struct{}{}
	cur.queued += size(&rec)
	cur.push([]schemas.Record{rec})
}

// close lets no Take begin any more.
func (l *ledger) close(a *Assignment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !a.closing {
		a.closing = true
		a.queue, a.queued = nil, 0
		a.cancel()
	}
}

// end turns the assignment into facts. It returns how many records are still open,
// and whether this call was the one that ended it.
func (l *ledger) end(a *Assignment) (open int, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.ended {
		return 0, false
	}
	a.ended, a.closing = true, true
	a.gone.Store(true)
	a.cancel()
	if l.current != a {
		return 0, true // it was never positioned
	}
	l.current = nil
	l.facts.keep(a.base, a.tracker, func(offset int64) bool {
		if l.goesOn(offset) {
			open++
			return false // adopted: the work of an earlier assignment
		}
		_, again := a.requeued[offset]
		_, given := a.givenUp[offset]
		_, late := a.adopted[offset] // given up after this assignment had closed
		if offset >= a.taken || again || given || late {
			return true
		}
		open++
		return false
	})
	for offset := range a.here {
		l.facts.settled.Remove(offset)
	}
	a.queue, a.adopted, a.requeued, a.givenUp, a.here = nil, nil, nil, nil, nil
	return open, true
}

// size is what a queued record is counted with, in bytes: the fetch buffer that it
// keeps alive is about that.
func size(rec *schemas.Record) int {
	n := len(rec.Key) + len(rec.Value) + 200
	for i := range rec.Headers {
		n += len(rec.Headers[i].Key) + len(rec.Headers[i].Value) + 48
	}
	return n
}
