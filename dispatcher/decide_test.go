package dispatcher

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestAnUnknownEndpointIsDecidedBehindTheBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.barrier = context.DeadlineExceeded
		w.send("new", 3)
		w.see(func() {
			if len(w.parked)+len(w.letters)+len(w.done) != 0 {
				t.Fatal("something was decided although the registry did not answer")
			}
		})
		w.endpoint("new")
		w.mu.Lock()
		w.barrier = nil
		w.mu.Unlock()
		time.Sleep(time.Second)
		w.see(func() {
			if len(w.posts) != 3 {
				t.Errorf("%d of 3 delivered after the endpoint became known", len(w.posts))
			}
		})
	})
}

func TestAnEndpointThatStaysUnknownIsParkedThenDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.send("nobody", 1)
		time.Sleep(11 * time.Minute)
		w.see(func() {
			if len(w.parked) != 1 || w.parked[0].Attempt != 0 {
				t.Fatalf("parked %+v", w.parked)
			}
		})
		old := w.parked[0].Headers()
		w.send("nobody", 1, old...)
		w.see(func() {
			if len(w.letters) != 1 || w.letters[0].Reason != schemas.ReasonEndpointUnknown {
				t.Fatalf("letters %+v", w.letters)
			}
		})
	})
}

func TestDisabledAndDeletedEndpointsEndAsDeadLetters(t *testing.T) {
	for state, reason := range map[schemas.EndpointState]schemas.Reason{
		schemas.StateDisabled: schemas.ReasonEndpointDisabled, schemas.StateDeleted: schemas.ReasonEndpointDeleted,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.endpoint("e", func(e *Endpoint) { e.State = state })
			w.send("e", 4)
			w.see(func() {
				if len(w.posts) != 0 || len(w.letters) != 4 || w.letters[0].Reason != reason || len(w.done) != 4 {
					t.Fatalf("%s: %d POSTs, %d letters, done %v", state, len(w.posts), len(w.letters), w.done)
				}
			})
		})
	}
}

func TestGoneDisablesTheEndpointUntilItsConfigurationIsNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.answer = func(*http.Request) (*http.Response, error) { return status(410), nil }
		w.send("e", 1)
		synctest.Wait()
		w.send("e", 2)
		w.see(func() {
			reasons := []schemas.Reason{w.letters[0].Reason, w.letters[1].Reason, w.letters[2].Reason}
			want := []schemas.Reason{schemas.ReasonGone, schemas.ReasonEndpointDisabled, schemas.ReasonEndpointDisabled}
			if !slices.Equal(reasons, want) || len(w.posts) != 1 {
				t.Fatalf("reasons %v after %d POSTs", reasons, len(w.posts))
			}
			w.answer = func(*http.Request) (*http.Response, error) { return status(200), nil }
		})
		w.endpoint("e", func(e *Endpoint) { e.Version = 2 })
		w.send("e", 1)
		w.see(func() {
			if len(w.posts) != 2 {
				t.Error("a newer configuration did not enable it")
			}
		})
	})
}
