package testkit

import (
	"sync"
	"testing"
	"time"
)

// Patience is by how much longer than its timeout says a test waits for something to
// come about: timeouts are what a machine at rest takes many times over, and one that
// is much slower, or busy with other things, is no fault of what is tested. It costs
// nothing where all is well.
const Patience = 5

// Signal carries events from the code under test to the test, which waits for
// them without sleeping. The zero value is ready. Emit never blocks; events
// wait in order until they are taken. Safe for concurrent use.
type Signal[T any] struct {
	mu     sync.Mutex
	queue  []T
	waiter chan struct{} // closed at the next Emit, nil when nobody waits
}

// Emit adds an event.
func (s *Signal[T]) Emit(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, v)
	if s.waiter != nil {
		close(s.waiter)
		s.waiter = nil
	}
}

// Next takes the oldest event, waiting for one up to timeout times Patience; then the
// test fails.
func (s *Signal[T]) Next(t testing.TB, timeout time.Duration) T {
	t.Helper()
	v, ok := s.take(timeout, func(T) bool { return true })
	if !ok {
		t.Fatalf("no signal within %s", timeout*Patience)
	}
	return v
}

// Until takes events until one matches and returns it; those before it are
// dropped. The test fails when none came within timeout times Patience.
func (s *Signal[T]) Until(t testing.TB, timeout time.Duration, match func(T) bool) T {
	t.Helper()
	v, ok := s.take(timeout, match)
	if !ok {
		t.Fatalf("no matching signal within %s", timeout*Patience)
	}
	return v
}

// Len is the number of events that nobody has taken yet.
func (s *Signal[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

func (s *Signal[T]) take(timeout time.Duration, match func(T) bool) (T, bool) {
	timer := time.NewTimer(timeout * Patience)
	defer timer.Stop()
	for {
		v, ok, wait := s.poll(match)
		if ok {
			return v, true
		}
		select {
		case <-wait:
		case <-timer.C:
			var zero T
			return zero, false
		}
	}
}

func (s *Signal[T]) poll(match func(T) bool) (T, bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 {
		v := s.queue[0]
		s.queue = s.queue[1:]
		if match(v) {
			return v, true, nil
		}
	}
	if s.waiter == nil {
		s.waiter = make(chan struct{})
	}
	var zero T
	return zero, false, s.waiter
}

// pollEvery is how often Eventually looks, and lookShare what part of the time its
// looking may take: a condition that reads a topic through would else take the
// processor from what it waits for.
const (
	pollEvery = 5 * time.Millisecond
	lookShare = 5
)

// Eventually looks at cond until it answers an empty string, and fails the test
// with its last answer after timeout times Patience. cond says what is still wrong, so the
// failure message does. It is the only place where tests poll: prefer Signal
// or a receiver's WaitFor where there is an event to wait for.
func Eventually(t testing.TB, timeout time.Duration, cond func() (stillWrong string)) {
	t.Helper()
	timeout *= Patience
	deadline := time.Now().Add(timeout)
	for {
		began := time.Now()
		wrong := cond()
		took := time.Since(began)
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s still: %s", timeout, wrong)
		}
		<-time.After(max(pollEvery, min(lookShare*took, 40*pollEvery)))
	}
}
