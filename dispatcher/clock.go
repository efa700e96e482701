package dispatcher

import (
	"sync/atomic"
	"time"
)

// clock notices when the wall clock moves against the monotonic one. Ages are told by
// the wall clock, because they outlive a process: after a jump of more than maxJump
// they are not to be trusted, and nothing dies of age until the next start.
type clock struct {
	wall   func() time.Time // with its monotonic reading taken off; time.Now in production
	began  time.Time        // by the monotonic clock
	walled time.Time        // the same moment by the wall clock
	jumped atomic.Bool
}

const maxJump = 10 * time.Minute

func newClock(wall func() time.Time) *clock {
	return &clock{wall: wall, began: time.Now(), walled: wall()}
}

func wallNow() time.Time { return time.Now().Round(0) }

// trusted reports whether a delivery may die of its age.
func (c *clock) trusted() bool {
	if c.jumped.Load() {
		return false
	}
	drift := c.wall().Sub(c.walled) - time.Since(c.began)
	if drift > maxJump || drift < -maxJump {
		c.jumped.Store(true)
		return false
	}
	return true
}
