package dispatcher

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestAnEndpointThatTakesFiftyASecondCostsThreeWritesARecordAndNobodyElseAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { fiftyASecond(t, 6_000) })
}

func TestSoakAMillionRecordsForAnEndpointThatTakesFiftyASecond(t *testing.T) {
	n := atSize(t, atSize(t, 1_000_000, 10*time.Minute), 5*time.Minute)
	synctest.Test(t, func(t *testing.T) { fiftyASecond(t, n) })
}

// fiftyASecond produces n records at once for an endpoint that takes one each 20 ms,
// and one each 100 ms for ten neighbours until all are delivered.
func fiftyASecond(t *testing.T, n int) {
	topics := &memoryHold{health: map[string]schemas.Health{}}
	w := newLoad(t, Config{}, topics)
	w.begin()
	w.endpoint("slow", one)
	var neighbours []string
	for i := range 10 {
		neighbours = append(neighbours, "n"+strconv.Itoa(i))
		w.endpoint(neighbours[i])
	}
	var waits []time.Duration
	last, disorder := -1, 0
	w.sees = func(id string, offset int, late time.Duration) {
		if id != "slow" {
			waits = append(waits, late)
			return
		}
		if offset < last {
			disorder++
		}
		last = max(last, offset)
	}
	w.answers(func(id string, r *http.Request) (*http.Response, error) {
		if id == "slow" {
			return after(20*time.Millisecond)(id, r)
		}
		return after(2*time.Millisecond)(id, r)
	})
	begun := time.Now()
	const batch = 500
	ids := make([]string, batch)
	for i := range ids {
		ids[i] = "slow"
	}
	others := 0
	for range n / batch {
		w.send(ids...)
		w.send(neighbours...)
		others += len(neighbours)
	}
	all := func() int64 { return int64(n + others) }
	for w.delivered.Load() < all() && time.Since(begun) < 2*time.Duration(n)*20*time.Millisecond {
		w.send(neighbours...)
		others += len(neighbours)
		time.Sleep(100 * time.Millisecond)
	}
	await(t, time.Minute, "all delivered", func() bool { return w.delivered.Load() == all() })
	took := time.Since(begun)
	topics.mu.Lock()
	health := topics.writes
	read := topics.readFrom
	topics.mu.Unlock()
	// The neighbours cost a record of the delivery log each.
	slow := float64(w.held.Load()+int64(health)+w.logged.Load()-int64(others)) / float64(n)
	t.Logf("%d records in %s (%.1f/s): %.3f writes a record (%d hold, %d health), %.1f times read from hold; neighbours' p99 %s, longest %s of %d",
		n, took, float64(n)/took.Seconds(), slow, w.held.Load(), health, float64(read)/float64(n)/140,
		percentile(waits, 0.99), percentile(waits, 1), len(waits))
	if slow > 3 {
		t.Errorf("%.3f writes a record, want at most 3", slow)
	}
	if disorder > 0 || w.most["slow"] != 1 || w.posts.Load() != all() {
		t.Errorf("%d out of order, %d at once, %d POSTs of %d", disorder, w.most["slow"], w.posts.Load(), all())
	}
	if p99 := percentile(waits, 0.99); p99 > 20*time.Millisecond {
		t.Errorf("the neighbours' p99 is %s", p99)
	}
	if rate := float64(n) / took.Seconds(); rate < 45 {
		t.Errorf("it took %.1f/s, want about 50", rate)
	}
}

func TestAnEndpointThatWasDownForADayIsBackWithinItsOpenTimeAndNotOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { downForADay(t, 2_000) })
}

func TestSoakAnEndpointDownForADayWithAHundredThousandWaiting(t *testing.T) {
	testkit.SoakBudget(t)
	synctest.Test(t, func(t *testing.T) { downForADay(t, 100_000) })
}

// downForADay produces n records over the day in which an endpoint answers 503.
func downForADay(t *testing.T, n int) {
	const limit = 8
	topics := &memoryHold{health: map[string]schemas.Health{}}
	w := newLoad(t, Config{}, topics)
	w.begin()
	w.endpoint("e", func(e *Endpoint) { e.MaxInFlight = limit })
	w.schedule = func(_ *schemas.Delivery, now time.Time) (time.Time, schemas.Reason) { return now.Add(time.Hour), "" }
	w.answers(func(string, *http.Request) (*http.Response, error) { return status(503), nil })
	const day = 24 * time.Hour
	begun := time.Now()
	const batch = 10
	for i := range n / batch {
		w.send("e", "e", "e", "e", "e", "e", "e", "e", "e", "e")
		time.Sleep(time.Until(begun.Add(day * time.Duration(i+1) / time.Duration(n/batch))))
	}
	synctest.Wait()
	probes := w.posts.Load()
	if held := w.held.Load(); held < int64(n)-100 || held > int64(n) {
		t.Errorf("%d writes to hold for %d records", held, n)
	}
	back := time.Now()
	var first time.Time
	var starts []time.Duration
	w.mu.Lock()
	w.most["e"] = 0
	w.sees = func(string, int, time.Duration) {
		if first.IsZero() {
			first = time.Now()
		}
		starts = append(starts, time.Since(first))
	}
	w.mu.Unlock()
	w.answers(after(50 * time.Millisecond))
	await(t, openLongest+2*time.Hour, "all delivered", func() bool { return w.delivered.Load()+w.parked.Load() == int64(n) })
	topics.mu.Lock()
	health := topics.writes
	topics.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	ramp := 0
	for _, s := range starts {
		if s < 50*time.Millisecond {
			ramp++
		}
	}
	each := float64(w.held.Load()+w.logged.Load()+w.parked.Load()+int64(health)) / float64(n)
	t.Logf("%d records, %d probes in the day; first delivery %s after it was back, all within %s; %d at once at the start, %d at most; %.3f writes a record (%d hold, %d health)",
		n, probes, first.Sub(back).Round(time.Millisecond), time.Since(first).Round(time.Second), ramp, w.most["e"], each, w.held.Load(), health)
	if wait := first.Sub(back); wait > openLongest+time.Second {
		t.Errorf("the first delivery came %s after it was back, it was to be within %s", wait, openLongest)
	}
	if ramp != 1 || w.most["e"] > limit {
		t.Errorf("%d at once at the start (want 1), %d at most (limit %d)", ramp, w.most["e"], limit)
	}
	if each > 3 {
		t.Errorf("%.3f writes a record, want at most 3", each)
	}
}
