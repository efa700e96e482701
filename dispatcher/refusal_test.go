package dispatcher

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/retrytopics"
	"github.com/milena-project/milena/schemas"
)

// proofledger makes a world whose endpoints have that preset.
func proofledger(t *testing.T, topics HoldLog) *load {
	t.Helper()
	policy, err := retrytopics.Compile(schemas.Retry{Preset: "proofledger"})
	if err != nil {
		t.Fatal(err)
	}
	w := newLoad(t, Config{}, topics)
	w.final = policy.FinalStatus
	return w
}

func TestAWrongRouteCostsAHundredAndFiftyDeadLettersAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { wrongRoute(t, 10) })
}

func TestSoakAWrongRouteAtFiveHundredASecond(t *testing.T) {
	seconds := atSize(t, 600, 10*time.Minute)
	synctest.Test(t, func(t *testing.T) { wrongRoute(t, seconds) })
}

// wrongRoute answers 404 to everything for ten minutes. 500 events a second come for
// so many of its seconds, then 5.
func wrongRoute(t *testing.T, seconds int) {
	w := proofledger(t, &memoryHold{health: map[string]schemas.Health{}})
	w.begin()
	w.endpoint("e")
	w.answers(func(_ string, r *http.Request) (*http.Response, error) {
		resp, err := after(5*time.Millisecond)("", r)
		if err == nil {
			resp.StatusCode = http.StatusNotFound
		}
		return resp, err
	})
	all := 0
	for tenth := range 6000 {
		n := 50
		if tenth >= 10*seconds {
			n = (tenth + 1) % 2
		}
		w.send(times(n, "e")...)
		all += n
		time.Sleep(100 * time.Millisecond)
	}
	synctest.Wait()
	dead := w.buried()
	w.answers(after(5 * time.Millisecond))
	await(t, 15*time.Minute, "the rest delivered after it was mended", func() bool { return int(w.delivered.Load())+w.buried() == all })
	t.Logf("%d dead letters of %d, %d of them after it was mended", w.buried(), all, w.buried()-dead)
	if dead > 150 || w.buried() != dead {
		t.Errorf("%d dead letters, %d of them after it was mended; want at most 150, and none", w.buried(), w.buried()-dead)
	}
}

func TestAReceiverThatRejectsSixtyPercentDoesNotDelayTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := proofledger(t, &memoryHold{health: map[string]schemas.Health{}})
		w.begin()
		w.endpoint("e")
		var waits []time.Duration
		w.sees = func(_ string, _ int, late time.Duration) { waits = append(waits, late) }
		w.answers(func(_ string, r *http.Request) (*http.Response, error) {
			resp, err := after(5*time.Millisecond)("", r)
			id := r.Header.Get("Ce-Id")
			if n, _ := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:]); err == nil && n*7%10 < 6 {
				resp.StatusCode = http.StatusUnprocessableEntity
			}
			return resp, err
		})
		const all = 5_000
		for range all / 5 { // 500 a second
			w.send(times(5, "e")...)
			time.Sleep(10 * time.Millisecond)
		}
		await(t, time.Minute, "all settled", func() bool { return int(w.delivered.Load())+w.buried() == all })
		w.mu.Lock()
		p99, longest := percentile(waits, 0.99), percentile(waits, 1)
		w.mu.Unlock()
		t.Logf("%d delivered, %d rejected, %d held; waits p99 %s, longest %s", w.delivered.Load(), w.buried(), w.held.Load(), p99, longest)
		if w.delivered.Load() != all*4/10 || w.held.Load() > 0 {
			t.Errorf("%d delivered, %d held; want %d and none", w.delivered.Load(), w.held.Load(), all*4/10)
		}
		if p99 > 20*time.Millisecond {
			t.Errorf("the p99 of their waits is %s", p99)
		}
	})
}
