package dlq

import (
	"context"
	"sync"
	"time"
)

// newest hands fn the letters that f selects over all partitions, newest first by
// the time at which they came into the topic, up to f.Limit; so first rows come at
// once, and every verb takes the same ones for a limit.
//
// Clocks may differ, so within a partition a letter counts as old as the newest
// record behind it at most; that makes the order of each partition's letters that of
// the log, and the order of all of them the same at every reading.
func (s *Store) newest(ctx context.Context, f *Filter, below Snapshot, fn func(*Entry) error) (Coverage, error) {
	scans, from, ends, err := s.scans(ctx, f, below)
	if err != nil {
		return Coverage{}, err
	}
	mctx, stop := context.WithCancel(ctx)
	m := &merge{heads: make([]*head, len(scans))}
	m.more.L = &m.mu
	var wg sync.WaitGroup
	for i, sc := range scans {
		h := &head{}
		m.heads[i] = h
		sc.visit = func(e *Entry) error { return m.offer(h, e.keep(), sc.back) }
		sc.passed = func(ctx context.Context, back time.Time) { m.pass(ctx, h, back) }
		wg.Go(func() {
			err := sc.run(mctx, from[sc.part], ends[sc.part], chunkFor(cap(sc.turn.of)))
			m.done(h, err)
		})
	}
	undo := context.AfterFunc(mctx, m.wake)
	err = m.run(mctx, f.Limit, fn)
	stop()
	undo()
	wg.Wait()
	cover := total(scans)
	if err == nil {
		cover.Complete, cover.BackTo = true, time.Time{} // no more was wanted
	} else {
		m.left(&cover)
	}
	return cover, s.partial(ctx, err)
}

// left takes back what was read and not given up: it is not in what was seen.
func (m *merge) left(c *Coverage) {
	begun := c.Complete || !c.BackTo.IsZero()
	for _, h := range m.heads {
		if len(h.queue) == 0 {
			continue
		}
		if h.done && h.err == nil {
			c.Complete, c.Partitions = false, c.Partitions-1
		}
		if begun && h.queue[0].at.After(c.BackTo) {
			c.BackTo = h.queue[0].at
		}
	}
}

// merge takes the newest head of all partitions again and again. It waits for a
// partition only while that could still bring a newer one.
type merge struct {
	mu    sync.Mutex
	more  sync.Cond
	heads []*head
}

// head is what a partition has found and not yet given up.
type head struct {
	queue []queued
	back  time.Time // what comes is not newer; zero: nothing is known yet
	done  bool
	err   error
}

type queued struct {
	entry Entry
	at    time.Time
}

// headRoom is with how many letters waiting a partition reads on. Those of one more
// chunk are in memory, without their payloads.
const headRoom = 64

func (m *merge) offer(h *head, e Entry, at time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.queue = append(h.queue, queued{e, at})
	h.back = at
	if len(h.queue) == 1 {
		m.more.Broadcast()
	}
	return nil
}

// pass is called between two chunks, and waits for room.
func (m *merge) pass(ctx context.Context, h *head, back time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.back = back
	m.more.Broadcast()
	for len(h.queue) >= headRoom && ctx.Err() == nil {
		m.more.Wait()
	}
}

func (m *merge) done(h *head, err error) {
	m.mu.Lock()
	h.done, h.err = true, err
	m.more.Broadcast()
	m.mu.Unlock()
}

func (m *merge) wake() {
	m.mu.Lock()
	m.more.Broadcast()
	m.mu.Unlock()
}

func (m *merge) run(ctx context.Context, limit int, fn func(*Entry) error) error {
	for n := 0; limit == 0 || n < limit; n++ {
		e, ok, err := m.next(ctx)
		if err != nil || !ok {
			return err
		}
		if err := fn(&e); err != nil {
			return err
		}
	}
	return nil
}

// next waits for the newest letter that is left.
func (m *merge) next(ctx context.Context) (Entry, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		best, err := m.best()
		if err != nil {
			return Entry{}, false, err
		}
		if best != nil && len(best.queue) > 0 {
			e := best.queue[0].entry
			best.queue = best.queue[1:]
			if len(best.queue) == headRoom-1 {
				m.more.Broadcast()
			}
			return e, true, nil
		}
		if best == nil {
			return Entry{}, false, nil
		}
		if err := ctx.Err(); err != nil {
			return Entry{}, false, err
		}
		m.more.Wait()
	}
}

// best is the partition whose next letter is the newest, or that could bring it and
// has to be waited for (its queue is empty); nil when all are at their end. Among
// equals the lower partition comes first, so an equal one has to be waited for.
func (m *merge) best() (*head, error) {
	var best *head
	var at time.Time
	for _, h := range m.heads {
		if h.err != nil {
			return nil, h.err
		}
		t := h.back
		switch {
		case len(h.queue) > 0:
			t = h.queue[0].at
		case h.done:
			continue
		case h.back.IsZero():
			return h, nil // it may bring anything
		}
		if best == nil || t.After(at) {
			best, at = h, t
		}
	}
	return best, nil
}
