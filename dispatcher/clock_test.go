package dispatcher

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestNothingDiesOfAgeAfterTheWallClockJumped(t *testing.T) {
	for name, jump := range map[string]time.Duration{"an hour ahead": time.Hour, "an hour back": -time.Hour, "five minutes ahead": 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			at := time.Duration(0)
			w.d.clock = newClock(func() time.Time { return wallNow().Add(at) })
			at = jump
			w.answers(func(*http.Request) (*http.Response, error) { return status(500), nil })
			w.endpoint("e")
			old := schemas.Delivery{EndpointID: "e", Event: schemas.Event{ID: "1", Source: "shop"}, Enqueued: time.Now().Add(-200 * time.Hour),
				Origin: schemas.Origin{Topic: "orders", Offset: 7}}
			w.send("e", 1, old.Headers()...)
			nobody := old
			nobody.EndpointID = "nobody"
			w.send("nobody", 1, nobody.Headers()...)
			time.Sleep(time.Second)
			w.see(func() {
				trusted := jump < maxJump && jump > -maxJump
				if trusted != (len(w.letters) == 2) || len(w.letters)+len(w.parked) != 2 {
					t.Errorf("%s: %d died, %d wait", name, len(w.letters), len(w.parked))
				}
			})
		})
	}
}

func TestNobodyIsSwitchedOffAfterTheWallClockJumped(t *testing.T) {
	for jump, want := range map[time.Duration]int64{0: 1, 80 * time.Hour: 0} {
		synctest.Test(t, func(t *testing.T) {
			// It has failed for a moment; by a clock that has jumped since, for days.
			since := time.Now().Add(-disableAfter - time.Hour)
			topics := &memoryHold{health: map[string]schemas.Health{
				"e": {Version: 1, Since: &schemas.Episode{FailingSince: since, Attempts: disableAttempts}},
			}}
			w := newWorldOn(t, Config{}, topics)
			w.d.clock = newClock(func() time.Time { return wallNow().Add(jump) })
			w.d.clock.walled = w.d.clock.walled.Add(-jump)
			w.answers(func(*http.Request) (*http.Response, error) { return status(500), nil })
			w.endpoint("e")
			w.send("e", 1)
			w.see(func() {
				w.d.lanes.mu.Lock()
				defer w.d.lanes.mu.Unlock()
				if got := w.d.lanes.byID["e"].disabledAt; got != want {
					t.Errorf("after a jump of %s it is disabled at version %d, want %d", jump, got, want)
				}
			})
		})
	}
}
