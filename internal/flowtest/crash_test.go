package flowtest

import (
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

// unfinished is how many deliveries another process would begin with now.
func (f *flow) unfinished() int {
	f.t.Helper()
	rep := f.look(time.Now())
	return int(f.topicOf(rep, f.names().Deliveries()).Unfinished + rep.Hold.Records)
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
