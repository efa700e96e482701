package dispatcher

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestTheOthersAreServedWhenHalfOfAllEndpointsBeginToHangAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { massHang(t, 400, 328, true) })
}

func TestSoakTenThousandOfTwentyThousandEndpointsHang(t *testing.T) {
	n := atSize(t, 20_000, 5*time.Minute)
	for _, warm := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) { massHang(t, n, 16_384*n/20_000, warm) })
	}
}

// massHang sends to n endpoints, a tenth of them a second in turn, for a minute in which
// every other one hangs. warm: all have answered before.
func massHang(t *testing.T, n, slots int, warm bool) {
	w := newLoad(t, Config{MaxInFlight: slots}, &memoryHold{health: map[string]schemas.Health{}})
	w.begin()
	ids := make([]string, n)
	odd := map[string]bool{}
	for i := range ids {
		ids[i] = "e" + strconv.Itoa(i)
		odd[ids[i]] = i%2 == 1
		w.endpoint(ids[i])
	}
	var waits []time.Duration
	good := 0
	w.sees = func(id string, _ int, late time.Duration) {
		if !odd[id] {
			waits = append(waits, late)
		}
	}
	var hanging atomic.Bool
	w.answers(func(id string, r *http.Request) (*http.Response, error) {
		if odd[id] && hanging.Load() {
			return hang(r)
		}
		return after(20*time.Millisecond)(id, r)
	})
	next := 0
	serve := func(seconds int) {
		for range seconds * 10 {
			for range n / 100 {
				w.send(ids[next%n])
				if !odd[ids[next%n]] {
					good++
				}
				next++
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	if warm {
		serve(10)
	}
	hanging.Store(true)
	synctest.Wait()
	w.mu.Lock()
	waits, good = nil, 0
	w.mu.Unlock()
	highest := 0
	if warm { // one for each, in the instant in which they begin to hang
		w.send(ids...)
		good += n / 2
	}
	for range 60 {
		serve(1)
		highest = max(highest, w.d.Load().InFlight)
	}
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("%d of %d endpoints hang, %d slots, warm %v: the others' waits p50 %s, p99 %s, longest %s; %d of %d sent; at most %d in flight, %d held",
		n/2, n, slots, warm, percentile(waits, 0.5), percentile(waits, 0.99), percentile(waits, 1), len(waits), good, highest, w.held.Load())
	if p99 := percentile(waits, 0.99); warm && (p99 > 20*time.Millisecond || len(waits) != good) {
		t.Errorf("the others' p99 is %s, %d of %d were sent", p99, len(waits), good)
	}
}
