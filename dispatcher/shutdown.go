package dispatcher

import (
	"errors"
	"time"
)

const (
	drainSlow  = time.Second     // an attempt that old makes its lane start no other
	drainLast  = 2 * time.Second // for what is in flight when nothing starts any more
	drainCheck = 20 * time.Millisecond
)

var errShutdown = errors.New("the process is shutting down")

// BeginShutdown says that from now on the partitions are drained because the
// process ends, and how long that may take.
func (d *Dispatcher) BeginShutdown(budget time.Duration) {
	d.budget.Store(int64(budget))
	d.closing.Store(true)
}

// windUp ends the work of all partitions, once. While attempts are open that have
// taken longer than a second, lanes without one go on sending: those seconds cost
// nothing. When they are over, or the budget is, nothing starts; what is in flight
// gets two seconds more and is then interrupted, which counts no attempt.
//
// The budget is the process's and not that of the Drain that comes first: a
// partition that is revoked meanwhile has five seconds, and must not cut off the
// others' requests.
func (d *Dispatcher) windUp() {
	d.wound.Do(func() {
		go func() {
			defer close(d.woundUp)
			d.lanes.setDraining()
			d.until(time.Duration(d.budget.Load()), func() bool { return !d.lanes.anySlow(time.Now()) })
			d.lanes.close()
			d.until(drainLast, d.lanes.noneInFlight)
			d.cancel(errShutdown)
		}()
	})
}

// until waits for a condition, at most for that long.
func (d *Dispatcher) until(most time.Duration, met func() bool) {
	tick := time.NewTicker(drainCheck)
	defer tick.Stop()
	end := time.NewTimer(most)
	defer end.Stop()
	for {
		if met() {
			return
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		}
	}
}

func (s *lanes) setDraining() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
}

// anySlow reports whether an attempt has been open for longer than drainSlow.
func (s *lanes) anySlow(now time.Time) (slow bool) {
	s.each(func(l *lane) { slow = slow || l.oldest(now) > drainSlow })
	return slow
}

func (s *lanes) noneInFlight() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight == 0
}

func (s *lanes) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.signalRoom()
}
