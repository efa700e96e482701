package dispatcher

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestARevokeDropsWhatIsQueuedAndWaitsForWhatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", func(e *Endpoint) { e.MaxInFlight = 1 })
		w.answer = func(*http.Request) (*http.Response, error) { time.Sleep(3 * time.Second); return status(200), nil }
		w.send("e", 5)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		before := time.Now()
		w.p.Drain(ctx)
		if took := time.Since(before); took != 3*time.Second {
			t.Errorf("Drain took %s, want the open attempt's 3 s", took)
		}
		w.see(func() {
			if !slices.Equal(w.done, []int64{0}) || !slices.Equal(sorted(w.givenUp), []int64{1, 2, 3, 4}) {
				t.Errorf("done %v, given up %v", w.done, w.givenUp)
			}
		})
	})
}

func TestAShutdownInterruptsWhatHangsWithoutCountingIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", func(e *Endpoint) { e.Timeout = time.Minute })
		w.answer = hang
		w.send("e", 2)
		synctest.Wait()
		w.d.BeginShutdown(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		w.p.Drain(ctx)
		w.see(func() {
			if len(w.done)+len(w.parked)+len(w.logged) != 0 || len(w.givenUp) != 2 {
				t.Errorf("done %v, parked %d, logged %d, given up %v", w.done, len(w.parked), len(w.logged), w.givenUp)
			}
		})
	})
}

// A rolling deploy: another member joins while this process winds up, and takes a
// partition away that has five seconds to go.
func TestARevokeDuringAShutdownCutsNoOtherPartitionsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.answers(func(*http.Request) (*http.Response, error) { time.Sleep(10 * time.Second); return status(200), nil })
		other := w.d.Assign(t.Context(), 1, w)
		w.send("e", 1)
		synctest.Wait()
		w.d.BeginShutdown(30 * time.Second)
		go func() {
			five, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			other.Drain(five)
		}()
		budget, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		w.p.Drain(budget)
		w.see(func() {
			if !slices.Equal(w.done, []int64{0}) {
				t.Errorf("done %v, given up %v", w.done, w.givenUp)
			}
		})
	})
}
