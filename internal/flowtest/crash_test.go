package flowtest

import (
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
)

// kill -9 at seeded moments with at least a hundred requests in flight: nothing is
// missing, and no more is repeated than R1 says: what was in flight, and what was
// answered and not committed yet.
func TestKilledAtAnyMomentNothingIsLostAndRepeatsAreBounded(t *testing.T) {
	const kills = 2
	f := newFlow(t)
	rng := testkit.Rand(t)
	ids := f.endpoints(6, limit(40))
	for _, id := range ids {
		f.receiver.Script("/"+id, testkit.Always(testkit.Answer{Delay: 300 * time.Millisecond}))
	}
	bound := 0
	for range kills {
		victim := f.spawn()
		begun := f.receiver.Log.Len()
		f.send(300, 300, ids...)
		f.receiver.WaitFor(t, begun+200+rng.IntN(600), 30*time.Second)
		testkit.Eventually(t, 20*time.Second, func() string {
			if f.inFlight(ids...) < 100 {
				return "fewer than 100 requests are in flight"
			}
			return ""
		})
		before := f.received(time.Second)
		inFlight := f.inFlight(ids...)
		victim.kill()
		// An answer is committed within 250 ms after its attempt record is acknowledged;
		// a second stands for both on a machine that is busy with the race detector.
		allowed := inFlight + before
		t.Logf("killed with %d in flight at %d answers/s: at most %d repeats", inFlight, before, allowed)
		bound += allowed
	}
	f.ready(f.start())
	c := f.delivered(time.Minute)
	f.settled(20 * time.Second)
	all, own := f.repeats()
	t.Logf("%s; %d of at most %d repeats", c, all, bound)
	if all > bound {
		t.Errorf("%d repeats, more than %d", all, bound)
	}
	if own != 0 {
		t.Errorf("%d attempts were POSTed twice by one process", own)
	}
}

// received is how many requests began within the last d.
func (f *flow) received(d time.Duration) (n int) {
	since := time.Now().Add(-d)
	for _, r := range f.receiver.Log.All() {
		if r.At.After(since) {
			n++
		}
	}
	return n
}
