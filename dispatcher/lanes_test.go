package dispatcher

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestConcurrencyGrowsWithProofAndNeverExceedsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", func(e *Endpoint) { e.MaxInFlight = 6 })
		w.answer = func(*http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			return status(200), nil
		}
		w.send("e", 60)
		time.Sleep(time.Second)
		w.see(func() {
			if w.most["e"] != 6 {
				t.Errorf("at most %d at once, want the limit of 6", w.most["e"])
			}
			if first, second := w.posts[0].at, w.posts[1].at; second.Sub(first) < 10*time.Millisecond {
				t.Error("an endpoint that has proven nothing got two requests at once")
			}
			if len(w.done) != 60 {
				t.Errorf("%d done, want 60", len(w.done))
			}
		})
	})
}

func TestMaxInFlightOneKeepsTheOrderOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", func(e *Endpoint) { e.MaxInFlight = 1 })
		w.send("e", 50)
		w.see(func() {
			for i, b := range w.bodies("e") {
				if b != strconv.Itoa(i) {
					t.Fatalf("POST %d was record %s", i, b)
				}
			}
		})
	})
}

func TestAnEndpointThatHangsCostsOneSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{MaxInFlight: 8})
		w.answer = func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/bad" {
				return hang(r)
			}
			return status(200), nil
		}
		w.endpoint("bad")
		w.endpoint("good")
		w.send("bad", 100)
		w.send("good", 100)
		w.see(func() {
			if w.most["bad"] != 1 {
				t.Errorf("%d requests open at the endpoint that hangs, want 1", w.most["bad"])
			}
			if len(w.bodies("good")) != 100 {
				t.Errorf("%d of 100 reached the good one", len(w.bodies("good")))
			}
		})
	})
}

func TestEndpointsThatHangTakeAtMostHalfOfTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{MaxInFlight: 8})
		w.answer = func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/good" {
				return status(200), nil
			}
			return hang(r)
		}
		w.endpoint("good")
		w.send("good", 1)
		synctest.Wait()
		for i := range 20 {
			w.endpoint("bad" + strconv.Itoa(i))
			w.send("bad"+strconv.Itoa(i), 3)
		}
		w.send("good", 50)
		w.see(func() {
			if n := len(w.bodies("good")); n != 51 {
				t.Errorf("%d of 51 reached the good one while 20 others hang", n)
			}
			if len(w.posts)-51 != 4 {
				t.Errorf("%d requests to those that hang, want half of 8", len(w.posts)-51)
			}
		})
	})
}

func TestTooManyRequestsPausesTheWholeLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", func(e *Endpoint) { e.MaxInFlight = 1 })
		w.answer = func(*http.Request) (*http.Response, error) { return status(429, "Retry-After", "60"), nil }
		w.send("e", 50)
		w.see(func() {
			if len(w.posts) != 1 {
				t.Fatalf("%d POSTs within the pause", len(w.posts))
			}
			w.answer = func(*http.Request) (*http.Response, error) { return status(200), nil }
		})
		time.Sleep(59 * time.Second)
		w.see(func() {
			if len(w.posts) != 1 {
				t.Errorf("%d POSTs before the pause ended", len(w.posts))
			}
		})
		time.Sleep(2 * time.Second)
		w.see(func() {
			if len(w.posts) != 50 || len(w.parked) != 1 {
				t.Errorf("%d POSTs and %d parked after the pause, want 50 and 1", len(w.posts), len(w.parked))
			}
		})
	})
}

// Registration refuses it, but a record can be written by hand. What can never start is
// held as if its breaker were open, and the partition's commit goes on.
func TestARateBelowNothingStopsItsEndpointAlone(t *testing.T) {
	for _, limit := range []schemas.RateLimit{{Rate: -1, Burst: -1}, {Rate: 0}, {Rate: 1e-300}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.endpoint("e", func(e *Endpoint) { e.RateLimit = &limit })
			w.endpoint("other")
			w.send("e", 3)
			w.send("other", 3)
			time.Sleep(20 * time.Second)
			w.see(func() {
				if len(w.done) != 6 || len(w.posts) != 3 {
					t.Errorf("%v: %d of 6 are done and %d were sent, want those of the other", limit, len(w.done), len(w.posts))
				}
			})
		})
	}
}

func TestABurstThatIsNotSaidIsOneSecondsWorth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", func(e *Endpoint) { e.RateLimit = &schemas.RateLimit{Rate: 5} })
		w.send("e", 1)
		time.Sleep(5 * time.Second) // the bucket is full
		w.send("e", 5)
		time.Sleep(time.Second / 5)
		w.see(func() {
			if len(w.posts) != 6 {
				t.Errorf("%d of 6 are sent", len(w.posts))
			}
		})
	})
}

func TestARateLimitHoldsOverEveryWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", func(e *Endpoint) { e.RateLimit = &schemas.RateLimit{Rate: 10, Burst: 3} })
		w.send("e", 100)
		time.Sleep(20 * time.Second)
		w.see(func() {
			if len(w.posts) != 100 {
				t.Fatalf("%d of 100 in 20 s at 10/s", len(w.posts))
			}
			for i := range w.posts {
				n := 0
				for _, p := range w.posts[i:] {
					if p.at.Sub(w.posts[i].at) < time.Second {
						n++
					}
				}
				if n > 13 {
					t.Fatalf("%d requests within a second, want at most rate + burst", n)
				}
			}
		})
	})
}
