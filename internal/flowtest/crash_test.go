package flowtest

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
)

// kill -9 at seeded moments with at least a hundred requests in flight: nothing is
// missing, and no more is repeated than R1 says: what was in flight, and what was
// answered and not committed yet, by Kafka's own account after the kill.
func TestKilledAtAnyMomentNothingIsLostAndRepeatsAreBounded(t *testing.T) {
	const kills, each = 2, 250
	f := newFlow(t)
	f.mortal()
	rng := testkit.Rand(t)
	ids := f.endpoints(6, limit(40))
	for _, id := range ids {
		f.receiver.Script("/"+id, testkit.Always(testkit.Answer{Delay: 300 * time.Millisecond}))
	}
	type death struct{ sent, unfinished, inFlight int }
	deaths := make(map[string]death, kills) // by the User-Agent of who died
	var died []string
	for round := range kills {
		victim := f.spawn()
		sent, before := (round+1)*each*len(ids), round*each*len(ids)
		begun := f.receiver.Log.Len()
		f.send(each, 300, ids...)
		f.receiver.WaitFor(t, begun+200+rng.IntN(600), 30*time.Second)
		d := death{sent: sent}
		testkit.Eventually(t, 20*time.Second, func() string {
			if sent-f.unfinished() <= before {
				return "nothing is committed"
			}
			if d.inFlight = f.inFlight(ids...); d.inFlight < 100 {
				return "fewer than 100 requests are in flight"
			}
			victim.kill()
			return ""
		})
		d.unfinished = f.unfinished()
		deaths[victim.agent] = d
		died = append(died, victim.agent)
	}
	f.ready(f.start())
	c := f.delivered(time.Minute)
	f.settled(20 * time.Second)
	bound := 0
	posted := make(map[string]bool) // deliveries of which the dead have made a request
	for _, agent := range died {
		for _, r := range f.receiver.Log.All() {
			if r.Header.Get("User-Agent") == agent {
				posted[r.DeliveryID] = true
			}
		}
		d := deaths[agent]
		uncommitted := len(posted) - (d.sent - d.unfinished)
		t.Logf("%s was killed with %d in flight, and %d requests made that were not committed", agent, d.inFlight, uncommitted)
		bound += uncommitted
	}
	all, own := f.repeats()
	t.Logf("%s; %d repeats of at most %d", c, all, bound)
	if all > bound {
		t.Errorf("%d repeats, more than %d", all, bound)
	}
	if own != 0 {
		t.Errorf("%d attempts were POSTed twice by one process", own)
	}
}

// kill -9 of an owner while a thousand endpoints drain from hold, then of the one that
// took over: nothing is missing, and no more is repeated than R1 says.
func TestSoakKilledWhileAThousandEndpointsDrain(t *testing.T) {
	needsBudget(t)
	const (
		endpoints, each = 1_000, 40
		took            = 500 * time.Millisecond
		kills           = 2
	)
	f := newFlow(t)
	f.mortal()
	rng := testkit.Rand(t)
	ids := f.endpoints(endpoints, limit(2))
	var mended atomic.Bool
	for _, id := range ids {
		f.receiver.Script("/"+id, func(int, *testkit.Received) testkit.Answer {
			if mended.Load() {
				return testkit.Answer{Delay: took}
			}
			return testkit.Answer{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"45"}}}
		})
	}
	procs := []*child{f.spawn(), f.spawn()}
	f.send(1, 300, ids...) // each is told to wait
	f.receiver.WaitFor(t, endpoints, time.Minute)
	f.send(each, 300, ids...) // and so this is held
	testkit.Eventually(t, time.Minute, func() string {
		if held := f.endOf(f.names().Hold()); held < endpoints*each {
			return fmt.Sprintf("%d of %d are on hold", held, endpoints*each)
		}
		return ""
	})
	mended.Store(true)
	first := f.receiver.Log.Len()
	// What is in flight began within took; what was answered from hold is told to health
	// once a second, and a quarter of one is for the acknowledgements.
	const window = took + 1250*time.Millisecond
	bound := 0
	for k := range kills {
		f.receiver.WaitFor(t, first+endpoints*each*(1+3*k)/8+rng.IntN(endpoints*each/8), 3*time.Minute)
		victim := k % len(procs)
		testkit.Eventually(t, time.Minute, func() string {
			if f.inFlight(ids...) < 100 {
				return "fewer than 100 requests are in flight"
			}
			procs[victim].kill()
			return ""
		})
		lately := f.received(window, procs[victim].agent)
		t.Logf("killed: the process had begun %d requests in its last %s; %d of %d had come",
			lately, window, f.receiver.Log.Len()-first, endpoints*each)
		bound += lately
		procs[victim] = f.spawn()
	}
	c := f.delivered(3 * time.Minute)
	f.settled(time.Minute)
	all, own := f.repeats()
	t.Logf("%s; %d repeats, R1 allows %d; %d by one and the same process", c, all, bound, own)
	if all > bound || own != 0 {
		t.Errorf("%d repeats (%d by one process), R1 allows %d", all, own, bound)
	}
	for _, p := range procs {
		p.terminate()
	}
}

// unfinished is how many deliveries another process would begin with now.
func (f *flow) unfinished() int {
	f.t.Helper()
	rep := f.look(time.Now())
	return int(f.topicOf(rep, f.names().Deliveries()).Unfinished + rep.Hold.Records)
}

// received is how many requests began within the last d, of all processes or of those
// with these agents.
func (f *flow) received(d time.Duration, agents ...string) (n int) {
	all := f.receiver.Log.All()
	if len(all) == 0 {
		return 0
	}
	since := all[len(all)-1].At.Add(-d)
	for _, r := range all {
		if r.At.After(since) && (len(agents) == 0 || slices.Contains(agents, r.Header.Get("User-Agent"))) {
			n++
		}
	}
	return n
}
