package flowtest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/testkit"
)

// kill -9 at seeded moments with at least a hundred requests in flight: nothing is
// missing, and no more is repeated than R1 says: what was in flight, what was
// answered and not committed yet, and what was held and answered in the last second.
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
		begun, logged := f.receiver.Log.Len(), f.endOf(f.names().Attempts())
		f.send(250, 300, ids...)
		ack := f.probe()
		f.receiver.WaitFor(t, begun+200+rng.IntN(600), 30*time.Second)
		inFlight := 0
		testkit.Eventually(t, 20*time.Second, func() string {
			if inFlight = f.inFlight(ids...); inFlight < 100 {
				return "fewer than 100 requests are in flight"
			}
			victim.kill()
			return ""
		})
		// What was answered and has no attempt record yet waits for that ack. The commit
		// comes an interval and an ack after it; a held one's place once a second.
		unlogged := f.receiver.Log.Len() - begun - inFlight - int(f.endOf(f.names().Attempts())-logged)
		window := f.cfg.Dispatcher.CommitInterval + 2*ack()
		if f.endOf(f.names().Hold()) > 0 {
			window = max(window, time.Second+ack())
		}
		uncommitted := f.received(window)
		bound += inFlight + max(0, unlogged) + uncommitted
		t.Logf("killed with %d in flight, %d answered and without a record, %d with one in the last %s, which is what a commit may take here",
			inFlight, unlogged, uncommitted, window.Round(time.Millisecond))
	}
	f.ready(f.start())
	c := f.delivered(time.Minute)
	f.settled(20 * time.Second)
	all, own := f.repeats()
	t.Logf("%s; %d repeats of at most %d", c, all, bound)
	if all > bound {
		t.Errorf("%d repeats, more than %d", all, bound)
	}
	if own != 0 {
		t.Errorf("%d attempts were POSTed twice by one process", own)
	}
}

// received is how many requests began within the last d.
func (f *flow) received(d time.Duration) (n int) {
	all := f.receiver.Log.All()
	if len(all) == 0 {
		return 0
	}
	since := all[len(all)-1].At.Add(-d)
	for _, r := range all {
		if r.At.After(since) {
			n++
		}
	}
	return n
}

// probe writes a record again and again until slowest is called, which returns what
// the slowest acknowledgement took: how quick this broker is on this machine now.
func (f *flow) probe() (slowest func() time.Duration) {
	f.t.Helper()
	var most atomic.Int64
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			default:
			}
			begun := time.Now()
			rec := &kgo.Record{Topic: f.names().Notices(), Key: []byte("probe")}
			if f.client.ProduceSync(f.t.Context(), rec).FirstErr() != nil {
				return
			}
			most.Store(max(most.Load(), int64(time.Since(begun))))
		}
	}()
	end := sync.OnceFunc(func() {
		close(quit)
		<-done
	})
	f.t.Cleanup(end)
	return func() time.Duration {
		end()
		return time.Duration(most.Load())
	}
}
