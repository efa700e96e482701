package flowtest

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/milena-project/milena/dispatcher"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
)

func TestAReceiverThatWasDownRecoversByRampingUp(t *testing.T) {
	t.Parallel()
	recovers(t, 1_000, time.Minute)
}

func TestSoakAReceiverThatWasDownWithAHundredThousandDeliveries(t *testing.T) {
	// At a receiver that takes some 1,000 a second a third of the budget is what it needs.
	recovers(t, min(100_000, int(testkit.SoakBudget(t)/time.Second)*300), 30*time.Minute)
}

// recovers keeps a receiver down until its breaker is open and everything is on hold,
// then mends it: nothing is lost, and it is never asked for more than its limit.
func recovers(t *testing.T, deliveries int, patience time.Duration) {
	t.Helper()
	const most = 8
	f := newFlow(t)
	f.endpoint("down", limit(most), schedule(slices.Repeat([]time.Duration{time.Second}, 40)...))
	var up atomic.Bool
	var mu sync.Mutex
	served := 0
	var ramp []int // how many requests were open, at each that came after the receiver was back
	f.receiver.Script("/down", func(int, *testkit.Received) testkit.Answer {
		if !up.Load() {
			return testkit.Answer{Status: http.StatusServiceUnavailable}
		}
		mu.Lock()
		defer mu.Unlock()
		served++
		ramp = append(ramp, f.receiver.Running("/down"))
		return testkit.Answer{Delay: 5 * time.Millisecond}
	})
	p := f.start()
	f.ready(p)
	for left := deliveries; left > 0; left -= 10_000 {
		f.send(min(left, 10_000), 200, "down")
	}
	testkit.Eventually(t, patience, func() string {
		state, _ := lane(t, p.app, "down")
		if state.Breaker != dispatcher.BreakerOpen || state.InFlight > 0 || state.Held < deliveries/2 {
			return fmt.Sprintf("breaker %s, %d in flight, %d held", state.Breaker, state.InFlight, state.Held)
		}
		return ""
	})
	up.Store(true)
	_, err := f.admin.Enable(t.Context(), registry.Actor{Who: "test", Door: "test"}, "down")
	must(t, err)
	t.Log(f.delivered(patience))
	testkit.Eventually(t, patience, func() string { // those that were refused too
		mu.Lock()
		defer mu.Unlock()
		if served < deliveries {
			return fmt.Sprintf("%d of %d were served", served, deliveries)
		}
		return ""
	})
	f.settled(30 * time.Second)
	f.once()
	f.peaks(most, "down")
	mu.Lock()
	defer mu.Unlock()
	for i, open := range ramp[:7] {
		if (i < 1 && open > 1) || (i < 3 && open > 2) || open > 4 {
			t.Errorf("request %d after the receiver was back was one of %d at once: %v", i+1, open, ramp[:7])
			break
		}
	}
	if got := len(f.awaitLetters(0)); got != 0 {
		t.Errorf("%d died", got)
	}
}
