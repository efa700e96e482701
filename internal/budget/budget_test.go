package budget

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

func TestTheBoundHoldsAndEveryoneGetsThrough(t *testing.T) {
	const limit = 100
	b := New(limit)
	var inFlight atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				n := 1 + rand.Int64N(limit)
				if !b.Acquire(t.Context(), n) {
					t.Error("refused, and ctx has not ended")
					return
				}
				if sum := inFlight.Add(n); sum > limit {
					t.Errorf("%d bytes in flight, at most %d may be", sum, limit)
				}
				inFlight.Add(-n)
				b.Release(n)
			}
		})
	}
	wg.Wait()
}

func TestWhatIsLargerThanTheBoundGoesAlone(t *testing.T) {
	b := New(10)
	if !b.Acquire(t.Context(), 50) {
		t.Fatal("refused, and nothing is in flight")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if b.Acquire(ended, 1) {
		t.Error("one byte more went beside what is larger than the bound")
	}
	b.Release(50)
	if !b.Acquire(ended, 1) {
		t.Error("refused, and nothing is in flight: an acquire that was refused took something")
	}
}
