//go:build kafka

package flowtest

import (
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
)

// A hundred thousand records of 1 KB through one process: each arrives once.
func TestSoakHundredThousandRecords(t *testing.T) {
	needsBudget(t)
	f := newFlow(t)
	ids := f.endpoints(100)
	f.send(1_000, 1_000, ids...)
	begun := time.Now()
	p := f.spawn()
	c := f.delivered(5 * time.Minute)
	took := time.Since(begun)
	f.settled(20 * time.Second)
	t.Logf("%s; %d signatures wrong; lag 0; %.0f/s from the start of the process", c, f.receiver.Log.Invalid(), float64(c.Received)/took.Seconds())
	if c.Repeats != 0 {
		t.Errorf("%d repeats without a reason", c.Repeats)
	}
	p.terminate()
}

// The same with a second process, and kill -9 of one of them at five seeded moments
// with at least a hundred requests in flight.
func TestSoakHundredThousandRecordsWithKills(t *testing.T) {
	needsBudget(t)
	const kills = 5
	f := newFlow(t)
	rng := testkit.Rand(t)
	ids := f.endpoints(100)
	for _, id := range ids {
		f.receiver.Script("/"+id, testkit.Always(testkit.Answer{Delay: 60 * time.Millisecond}))
	}
	procs := []*child{f.spawn(), f.spawn()}
	f.send(1_000, 1_000, ids...)
	bound := 0
	for k := range kills {
		f.receiver.WaitFor(t, 5_000+k*16_000+rng.IntN(8_000), 3*time.Minute)
		testkit.Eventually(t, time.Minute, func() string {
			if f.inFlight(ids...) < 100 {
				return "fewer than 100 requests are in flight"
			}
			return ""
		})
		answered, inFlight := f.received(time.Second), f.inFlight(ids...)
		victim := rng.IntN(2)
		procs[victim].kill()
		t.Logf("killed with %d requests in flight at %d answers/s", inFlight, answered)
		bound += inFlight + answered
		procs[victim] = f.spawn()
	}
	c := f.delivered(5 * time.Minute)
	f.settled(time.Minute)
	all, own := f.repeats()
	t.Logf("%s; %d signatures wrong; lag 0; %d repeats, R1 allows %d; %d by one and the same process", c, f.receiver.Log.Invalid(), all, bound, own)
	if all > bound || own != 0 {
		t.Errorf("%d repeats (%d by one process), R1 allows %d", all, own, bound)
	}
	for _, p := range procs {
		p.terminate()
	}
}
