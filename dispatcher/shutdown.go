package dispatcher

import (
	"context"
	"errors"
	"time"
)

const (
	drainSlow  = time.Second     // an attempt that old makes its lane start no other
	drainLast  = 2 * time.Second // for what is in flight when nothing starts any more
	drainCheck = 20 * time.Millisecond
)

var errShutdown = errors.New("the process is shutting down")

// BeginShutdown says that the partitions are drained because the process ends.
func (d *Dispatcher) BeginShutdown() { d.closing.Store(true) }

// windUp ends the work of all partitions. While attempts are open that have taken
// longer than a second, lanes without one go on sending: those seconds cost nothing.
// When they are over, or ctx is, nothing starts; what is in flight gets two seconds
// more and is then interrupted, which counts no attempt.
func (d *Dispatcher) windUp(ctx context.Context) {
	d.wound.Do(func() {
		go func() {
			defer close(d.woundUp)
			d.lanes.setDraining()
			d.until(ctx, func(s *lanes) bool { return !s.anySlow(time.Now()) })
			d.lanes.close()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLast)
			defer cancel()
			d.until(last, func(s *lanes) bool { return s.inFlight == 0 })
			d.cancel(errShutdown)
		}()
	})
	<-d.woundUp
}

// until waits for a condition on the lanes or the end of ctx.
func (d *Dispatcher) until(ctx context.Context, met func(*lanes) bool) {
	tick := time.NewTicker(drainCheck)
	defer tick.Stop()
	for {
		d.lanes.mu.Lock()
		ok := met(d.lanes)
		d.lanes.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
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
func (s *lanes) anySlow(now time.Time) bool {
	for _, l := range s.byID {
		if l.oldest(now) > drainSlow {
			return true
		}
	}
	return false
}

func (s *lanes) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.signalRoom()
}
