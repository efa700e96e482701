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
