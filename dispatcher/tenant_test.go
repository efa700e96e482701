package dispatcher

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func of(tenant string) func(*Endpoint) { return func(e *Endpoint) { e.Tenant = tenant } }

func TestOneTenantHasNoMoreThanItsShareInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{MaxInFlight: 20, TenantShare: 0.25})
		w.answers(func(*http.Request) (*http.Response, error) {
			time.Sleep(50 * time.Millisecond)
			return status(200), nil
		})
		w.endpoint("small", of("small"))
		w.endpoint("free")
		for i := range 30 {
			w.endpoint("big"+strconv.Itoa(i), of("big"))
			w.send("big"+strconv.Itoa(i), 10)
		}
		w.send("small", 10)
		w.send("free", 10)
		for range 100 {
			time.Sleep(10 * time.Millisecond)
			open := 0
			w.mu.Lock()
			for i := range 30 {
				open += w.open["big"+strconv.Itoa(i)]
			}
			w.mu.Unlock()
			if open > 5 {
				t.Fatalf("%d requests of one tenant open, want at most a quarter of 20", open)
			}
		}
		w.see(func() {
			if n := len(w.bodies("small")) + len(w.bodies("free")); n != 20 {
				t.Errorf("%d of the 20 of others were sent within a second", n)
			}
		})
		time.Sleep(time.Minute)
		w.see(func() {
			if len(w.done) != 320 || len(w.posts) != 320 {
				t.Errorf("%d done, %d POSTs, want 320", len(w.done), len(w.posts))
			}
		})
	})
}

func TestATenantsRateHoldsAndHarmsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{TenantRate: 10})
		for i := range 10 {
			w.endpoint("slow"+strconv.Itoa(i), of("slow"))
			w.send("slow"+strconv.Itoa(i), 100)
		}
		w.endpoint("other", of("other"))
		w.send("other", 10)
		time.Sleep(2 * time.Second)
		w.see(func() {
			if n := len(w.bodies("other")); n != 10 {
				t.Errorf("%d of 10 of another tenant", n)
			}
			if n := len(w.posts) - 10; n > 30 {
				t.Errorf("%d POSTs in 2 s at 10/s", n)
			}
			if state, _ := w.d.Lane("slow0"); state.Held == 0 {
				t.Errorf("what waits for minutes is not on hold: %+v", state)
			}
		})
		time.Sleep(110 * time.Second)
		w.see(func() {
			if n := len(w.posts); n != 1010 {
				t.Errorf("%d POSTs, want 1010", n)
			}
			for i := range w.posts {
				n := 0
				for _, p := range w.posts[i:] {
					if p.endpoint != "other" && p.at.Sub(w.posts[i].at) < time.Second {
						n++
					}
				}
				if n > 21 {
					t.Fatalf("%d of one tenant within a second", n)
				}
			}
		})
	})
}
