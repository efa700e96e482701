package flowtest

import (
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// SIGTERM while some requests are answered within the budget, some never, and some
// deliveries wait in a tier: what was settled is not made again, and what was cut off
// is made again as the same attempt.
func TestInvariant4AShutdownConsumesNoAttemptAndRepeatsNone(t *testing.T) {
	t.Parallel() // most of it is waiting for the budget to end
	f := newFlow(t)
	f.cfg.Dispatcher.DrainBudget = 5 * time.Second
	ends, never := make(chan struct{}), make(chan struct{})
	restarted := make(chan struct{})
	for _, id := range []string{"slow0", "slow1", "slow2"} {
		f.endpoint(id)
		f.receiver.Script("/"+id, testkit.Always(testkit.Answer{Hang: ends}))
	}
	hanging := []string{"hangs0", "hangs1", "hangs2"}
	for _, id := range hanging {
		f.endpoint(id)
		f.receiver.Script("/"+id, func(int, *testkit.Received) testkit.Answer {
			select {
			case <-restarted:
				return testkit.Answer{}
			default:
				return testkit.Answer{Hang: never}
			}
		})
	}
	waiting := []string{"waits0", "waits1", "waits2"}
	for _, id := range waiting {
		f.endpoint(id, schedule(5*time.Second))
		f.receiver.Script("/"+id, testkit.Sequence(testkit.Answer{Status: 503}, testkit.Answer{}))
	}
	open := []string{"slow0", "slow1", "slow2", "hangs0", "hangs1", "hangs2"}
	all := append(open[:len(open):len(open)], waiting...)
	first := f.spawn()
	f.send(1, 300, all...)
	f.awaitInFlight(len(open), open...)
	f.receiver.WaitFor(t, len(all), 30*time.Second)
	took := first.terminate(func() { close(ends) })
	t.Logf("it took %s to end", took.Round(time.Millisecond))
	close(restarted)
	f.spawn()
	f.awaitDelivered(len(all))
	f.settled(20 * time.Second)

	type attempt struct{ path, number string }
	posts := make(map[attempt]int)
	for _, r := range f.receiver.Log.All() {
		posts[attempt{r.Path, r.Attempt}]++
	}
	want := make(map[attempt]int)
	for _, id := range all {
		want[attempt{"/" + id, "1"}] = 1
	}
	for _, id := range hanging { // cut off, so the same attempt again
		want[attempt{"/" + id, "1"}] = 2
	}
	for _, id := range waiting {
		want[attempt{"/" + id, "2"}] = 1
	}
	for a, n := range want {
		if posts[a] != n {
			t.Errorf("attempt %s of %s was POSTed %d times, not %d", a.number, a.path, posts[a], n)
		}
		delete(posts, a)
	}
	if len(posts) > 0 {
		t.Errorf("attempts that should not have been: %v", posts)
	}
	for id, history := range f.attempts() {
		for i, a := range history {
			if a.Outcome == schemas.OutcomeDelivered || a.Outcome == schemas.OutcomeRetry {
				if a.Number != i+1 {
					t.Errorf("record %d of %s is of attempt %d", i+1, id, a.Number)
				}
			}
		}
	}
}
