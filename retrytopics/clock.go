package retrytopics

import (
	"context"
	"sync"
	"time"
)

// driftNoticed is how far wall and monotonic clock may part before all that wait
// look at the wall clock again.
const driftNoticed = 100 * time.Millisecond

// clock waits for wall-clock times. Due times are wall-clock data, so readiness is
// always read from the wall; waiting is done on the monotonic clock, so that a jump
// of the wall makes nobody spin. A jump wakes all that wait, once, to look again.
type clock struct {
	now func() time.Time // the wall clock

	mu     sync.Mutex
	jumped chan struct{} // closed at a jump and made anew
}

func newClock(now func() time.Time) *clock {
	return &clock{now: now, jumped: make(chan struct{})}
}

// wall is the time of the wall clock, without a monotonic reading: Sub and Before
// on it speak of the wall.
func (c *clock) wall() time.Time { return c.now().Round(0) }

// jump is closed at the next jump. It must be asked for before the wall is read.
func (c *clock) jump() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jumped
}

// wait returns true when the wall has reached until or most has passed on the
// monotonic clock, false when stop is closed or ctx ends first.
func (c *clock) wait(ctx context.Context, stop <-chan struct{}, until time.Time, most time.Duration) bool {
	start := time.Now()
	for {
		jump := c.jump()
		left := min(until.Sub(c.wall()), most-time.Since(start))
		if left <= 0 {
			return true
		}
		// At least a millisecond: the two clocks never agree to the nanosecond, and
		// a timer that fires a little before the wall is there must not spin.
		timer := time.NewTimer(max(left, time.Millisecond))
		select {
		case <-timer.C:
		case <-jump:
			timer.Stop()
		case <-stop:
			timer.Stop()
			return false
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// watch compares the clocks every second until ctx ends. The difference adds up
// from tick to tick, so a wall clock that is slewed for hours is noticed too.
func (c *clock) watch(ctx context.Context, onJump func(by time.Duration)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	mono, wall := time.Now(), c.wall()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m, w := time.Now(), c.wall()
		by := w.Sub(wall) - m.Sub(mono)
		if by.Abs() < driftNoticed {
			continue
		}
		mono, wall = m, w
		c.mu.Lock()
		close(c.jumped)
		c.jumped = make(chan struct{})
		c.mu.Unlock()
		onJump(by)
	}
}
