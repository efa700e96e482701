package dispatcher

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

func one(e *Endpoint) { e.MaxInFlight = 1 }

func TestWhatWouldNotStartInTimeGoesToHoldAndComesBackInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", one)
		w.answer = func(*http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			return status(200), nil
		}
		w.send("e", 500)
		time.Sleep(time.Second)
		w.see(func() {
			if len(w.topics.hold) == 0 || len(w.done) < 400 {
				t.Errorf("%d on hold, %d done in deliveries", len(w.topics.hold), len(w.done))
			}
		})
		time.Sleep(time.Minute)
		w.see(func() {
			if got := w.bodies("e"); !slices.Equal(got, numbers(0, 500)) {
				t.Fatalf("%d POSTs, not each record once in order: %.200v", len(got), got)
			}
			if _, ok := w.topics.healthOf("e"); ok {
				t.Error("health still speaks of the endpoint after everything was delivered")
			}
			if len(w.topics.hold) > 500 {
				t.Errorf("%d writes to hold for 500 records", len(w.topics.hold))
			}
		})
	})
}

func TestABreakerOpensHoldsEverythingAndProbesWithOneDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", one)
		w.answer = func(*http.Request) (*http.Response, error) { return status(500), nil }
		w.send("e", 100)
		w.see(func() {
			if len(w.posts) != 5 || len(w.topics.hold) != 95 {
				t.Fatalf("%d POSTs before it opened, %d on hold; want 5 and 95", len(w.posts), len(w.topics.hold))
			}
		})
		time.Sleep(29 * time.Second)
		w.see(func() {
			if len(w.posts) != 5 {
				t.Fatalf("%d POSTs while it was open", len(w.posts))
			}
		})
		time.Sleep(2 * time.Second)
		w.see(func() {
			if len(w.posts) != 6 {
				t.Fatalf("%d POSTs after 31 s, want one probe", len(w.posts)-5)
			}
			w.answer = func(*http.Request) (*http.Response, error) { return status(200), nil }
		})
		time.Sleep(59 * time.Second)
		w.see(func() {
			if len(w.posts) != 6 {
				t.Fatalf("the second opening was not longer: %d POSTs", len(w.posts)-6)
			}
		})
		time.Sleep(2 * time.Second)
		w.see(func() {
			if len(w.posts) != 100 || !slices.Equal(w.bodies("e"), numbers(0, 100)) {
				t.Fatalf("%d of 100 POSTs after it recovered", len(w.posts))
			}
		})
	})
}

func TestADeliveryIsDoneOnlyWhenHealthTellsWhereHoldBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", one)
		w.answer = func(*http.Request) (*http.Response, error) { return status(429, "Retry-After", "600"), nil }
		w.send("e", 1)
		synctest.Wait()
		time.Sleep(2 * time.Second)
		w.topics.stalled(true)
		w.send("e", 10)
		w.see(func() {
			if len(w.done) != 1 {
				t.Fatalf("done %v before anything was acknowledged", w.done)
			}
		})
		w.topics.stalled(false)
		w.see(func() {
			h, ok := w.topics.healthOf("e")
			if !ok || h.Next == nil || *h.Next != 0 || len(w.done) != 11 {
				t.Errorf("health %+v, %d done", h, len(w.done))
			}
		})
	})
}

func TestANewOwnerGoesOnWithWhatIsOnHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := &memoryHold{health: map[string]schemas.Health{}}
		w := newWorldOn(t, Config{}, topics)
		w.endpoint("e", one)
		w.answer = func(*http.Request) (*http.Response, error) { return status(503, "Retry-After", "60"), nil }
		w.send("e", 50)
		time.Sleep(2 * time.Second)
		w.crash()
		w2 := newWorldOn(t, Config{}, topics)
		w2.endpoint("e", one)
		time.Sleep(30 * time.Second)
		w2.see(func() {
			if len(w2.posts) != 0 {
				t.Fatalf("the new owner sent %d within the pause", len(w2.posts))
			}
		})
		time.Sleep(40 * time.Second)
		w2.see(func() {
			if got := w2.bodies("e"); !slices.Equal(got, numbers(1, 50)) {
				t.Errorf("the new owner sent %v", got)
			}
			if _, ok := topics.healthOf("e"); ok {
				t.Error("health still speaks of the endpoint")
			}
		})
	})
}

func TestAZombiesRecordsOnHoldAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := &memoryHold{health: map[string]schemas.Health{}}
		w := newWorldOn(t, Config{}, topics)
		w.endpoint("e", one)
		w.answer = func(*http.Request) (*http.Response, error) { return status(503, "Retry-After", "60"), nil }
		w.send("e", 3)
		time.Sleep(2 * time.Second)
		w2 := newWorldOn(t, Config{}, topics)
		w2.endpoint("e", one)
		w.send("e", 2) // it does not know yet that it is no owner
		time.Sleep(2 * time.Minute)
		w2.see(func() {
			if got := w2.bodies("e"); !slices.Equal(got, numbers(1, 3)) {
				t.Errorf("the owner sent %v, want what was on hold before its claim", got)
			}
		})
	})
}

func TestAHealthyEndpointLeavesHoldAfterAHiccup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		after := func(d time.Duration) func(*http.Request) (*http.Response, error) {
			return func(*http.Request) (*http.Response, error) { time.Sleep(d); return status(200), nil }
		}
		send := func(tenths int) { // at 1,000/s
			for range tenths {
				w.send("e", 100)
				time.Sleep(100 * time.Millisecond)
			}
		}
		w.answers(after(5 * time.Millisecond))
		send(20)
		well := time.Now().Add(8 * time.Second)
		w.answers(func(*http.Request) (*http.Response, error) { time.Sleep(time.Until(well)); return status(200), nil })
		send(80)
		w.see(func() {
			if len(w.topics.hold) == 0 {
				t.Error("nothing was held during a hiccup of eight seconds")
			}
		})
		w.answers(after(5 * time.Millisecond))
		send(10)
		before := len(w.topics.bodies())
		send(30)
		w.see(func() {
			if now := len(w.topics.hold); now != before {
				t.Errorf("%d writes to hold after it was well again", now-before)
			}
		})
		time.Sleep(20 * time.Second)
		w.see(func() {
			if n := len(w.bodies("e")); n != 14_000 {
				t.Errorf("%d of 14000 delivered", n)
			}
		})
	})
}

func TestDisablingEndsWhatIsOnHoldAsDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", one)
		w.answer = func(*http.Request) (*http.Response, error) { return status(429, "Retry-After", "60"), nil }
		w.send("e", 20)
		time.Sleep(2 * time.Second)
		w.endpoint("e", one, func(e *Endpoint) { e.State, e.Version = schemas.StateDisabled, 2 })
		time.Sleep(2 * time.Minute)
		w.see(func() {
			if len(w.letters) != 19 || w.letters[0].Reason != schemas.ReasonEndpointDisabled {
				t.Errorf("%d letters, want 19 of a disabled endpoint", len(w.letters))
			}
			if _, ok := w.topics.healthOf("e"); ok {
				t.Error("health still speaks of the endpoint")
			}
		})
	})
}

func TestAReadOfHoldGrowsWithWhatALaneCanUse(t *testing.T) {
	turn := holdFirst
	for range 20 {
		turn = nextTurn(turn, turn, 1)
	}
	if turn != holdTurn {
		t.Errorf("%d bytes after many turns that were used, want %d", turn, holdTurn)
	}
	if got := nextTurn(turn, turn, 0.125); got != holdTurn/4 {
		t.Errorf("%d bytes after a turn of which an eighth was used, want %d", got, holdTurn/4)
	}
	if got := nextTurn(turn, turn, 0); got != holdFirst {
		t.Errorf("%d bytes after a turn that was no use, want %d", got, holdFirst)
	}
}

func TestWhatHasBeenOnHoldForLongerThanItsEndpointsMaxAgeDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("short", func(ep *Endpoint) { ep.MaxAge = time.Minute })
		w.endpoint("long")
		w.answers(func(*http.Request) (*http.Response, error) { return status(503, "Retry-After", "600"), nil })
		for _, id := range []string{"short", "long"} {
			w.send(id, 1) // paused by its answer
			time.Sleep(time.Second)
			w.send(id, 3)
		}
		w.answers(func(*http.Request) (*http.Response, error) { return status(200), nil })
		time.Sleep(11 * time.Minute)
		w.see(func() {
			if n := len(w.bodies("long")); n != 1+3 {
				t.Errorf("%d POSTs to the one that takes them old, want 4", n)
			}
			if n := len(w.bodies("short")); n != 1 {
				t.Errorf("%d POSTs to the one that takes them for a minute, want 1", n)
			}
			if len(w.letters) != 3 || w.letters[0].Reason != schemas.ReasonExpired || w.letters[0].EndpointID != "short" {
				t.Errorf("%d letters: %v", len(w.letters), w.letters)
			}
		})
	})
}
