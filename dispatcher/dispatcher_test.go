package dispatcher

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestAnOffsetIsDoneOnlyWhenEveryWriteIsAcknowledged(t *testing.T) {
	for _, code := range []int{200, 400, 410, 500} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.endpoint("e")
			w.answer = func(*http.Request) (*http.Response, error) { return status(code), nil }
			w.holdAcks.Store(true)
			w.send("e", 1)
			w.see(func() {
				if len(w.posts) != 1 || len(w.done) != 0 {
					t.Fatalf("status %d: posts %d, done %v before any ack", code, len(w.posts), w.done)
				}
			})
			if code != 200 {
				w.mu.Lock()
				first := w.acks[0]
				w.acks = w.acks[1:]
				w.mu.Unlock()
				first()
				w.see(func() {
					if len(w.done) != 0 {
						t.Fatalf("status %d: done after one ack of two", code)
					}
				})
			}
			w.release()
			w.see(func() {
				if !slices.Equal(w.done, []int64{0}) {
					t.Fatalf("status %d: done %v after all acks", code, w.done)
				}
			})
		})
	}
}

func TestAFailedAttemptIsParkedWithItsDueTimeAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.answer = func(*http.Request) (*http.Response, error) { return status(503, "Retry-After", "120"), nil }
		w.send("e", 1)
		w.see(func() {
			if len(w.parked) != 1 || w.parked[0].Attempt != 1 || w.parked[0].LastStatus != 503 {
				t.Fatalf("parked %+v", w.parked)
			}
			if due := time.Until(w.parked[0].NotBefore); due != 2*time.Minute {
				t.Errorf("due in %s, want the Retry-After", due)
			}
			if a := w.logged[0]; a.Outcome != schemas.OutcomeRetry || a.Number != 1 || a.NextTry.IsZero() {
				t.Errorf("attempt record %+v", a)
			}
		})
	})
}

func TestNoPostBeginsWhileTheLeaseIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.owned.Store(false)
		w.send("e", 3)
		time.Sleep(time.Second)
		w.see(func() {
			if len(w.posts) != 0 {
				t.Fatalf("%d POSTs without a lease", len(w.posts))
			}
		})
		w.owned.Store(true)
		time.Sleep(time.Second)
		w.see(func() {
			if len(w.posts) != 3 {
				t.Errorf("%d of 3 POSTs once the lease was fresh", len(w.posts))
			}
		})
	})
}

func TestAFailureDuringOurOwnSleepIsNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.frozen.Store(true)
		w.answer = func(*http.Request) (*http.Response, error) { return nil, errRefused }
		w.send("e", 1)
		w.see(func() {
			if len(w.parked)+len(w.logged) != 0 {
				t.Error("an attempt was charged although the process stood still")
			}
			w.answer = func(*http.Request) (*http.Response, error) { return status(200), nil }
		})
		time.Sleep(2 * time.Second)
		w.see(func() {
			if len(w.done) != 1 || w.logged[0].Number != 1 {
				t.Errorf("done %v, log %+v", w.done, w.logged)
			}
		})
	})
}

func TestAnAnswerCountsThoughWeStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.frozen.Store(true)
		w.answer = func(*http.Request) (*http.Response, error) { return status(500), nil }
		w.send("e", 1)
		w.see(func() {
			if len(w.posts) != 1 || len(w.parked) != 1 {
				t.Errorf("%d POSTs, %d parked; the receiver has answered, want 1 of each", len(w.posts), len(w.parked))
			}
		})
	})
}
