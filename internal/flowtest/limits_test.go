package flowtest

import (
	"slices"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// peaks demands that no endpoint saw more than most requests at once.
func (f *flow) peaks(most int, endpoints ...string) {
	f.t.Helper()
	highest := 0
	for _, id := range endpoints {
		peak := f.receiver.Peak("/" + id)
		highest = max(highest, peak)
		if peak > most {
			f.t.Errorf("%s saw %d requests at once, allowed are %d", id, peak, most)
		}
	}
	f.t.Logf("at most %d requests at once, allowed are %d", highest, most)
	if highest < 2 {
		f.t.Error("the load was too small to tell")
	}
}

func TestInvariant6AnEndpointNeverSeesMoreThanItsLimitWhileMembersComeAndGo(t *testing.T) {
	const most = 4
	f := newFlow(t)
	ids := f.endpoints(8, limit(most))
	pace := schemas.RateLimit{Rate: 40, Burst: 5}
	f.endpoint("paced", limit(most), func(ep *registry.Endpoint) { ep.RateLimit = &pace })
	ids = append(ids, "paced")
	for _, id := range ids {
		f.receiver.Script("/"+id, testkit.Always(testkit.Answer{Delay: 30 * time.Millisecond}))
	}
	f.ready(f.start())
	f.ready(f.start())
	f.send(60, 300, ids...)
	for range 2 {
		guest := f.start()
		f.ready(guest)
		f.send(30, 300, ids...)
		guest.end(t)
		f.send(30, 300, ids...)
	}
	t.Log(f.delivered(time.Minute))
	f.peaks(most, ids...)
	f.paced("paced", pace, 2*most)
}

// paced demands that over no window an endpoint received more than its rate and its
// burst. A request that was allowed may arrive any time later, as long as it is open,
// so as many as may be open at once are let pass on top.
func (f *flow) paced(id string, limit schemas.RateLimit, open int) {
	f.t.Helper()
	var at []time.Time
	for _, r := range f.receiver.Log.All("/" + id) {
		at = append(at, r.At)
	}
	slices.SortFunc(at, time.Time.Compare)
	worst := 0.0
	for i := range at {
		for j := i; j < len(at); j++ {
			worst = max(worst, float64(j-i+1)-float64(limit.Rate)*at[j].Sub(at[i]).Seconds())
		}
	}
	f.t.Logf("%d requests in %s; over no window more than %.1f above the rate of %v a second, the burst is %d",
		len(at), at[len(at)-1].Sub(at[0]).Round(time.Millisecond), worst, limit.Rate, limit.Burst)
	if most := float64(limit.Burst + open); worst > most {
		f.t.Errorf("%.1f above the rate, at most %.0f are allowed", worst, most)
	}
}

// A frozen owner's requests stay open while its successor makes its own.
func TestInvariant6AfterAFreezeAnEndpointSeesAtMostTwiceItsLimit(t *testing.T) {
	const most = 4
	f := newFlow(t)
	f.mortal()
	ids := f.endpoints(4, limit(most))
	gate := make(chan struct{})
	frozen := f.spawn()
	f.send(20, 300, ids...) // the lanes grow to their limit
	f.delivered(30 * time.Second)
	f.settled(20 * time.Second)
	for _, id := range ids {
		f.receiver.Script("/"+id, testkit.Always(testkit.Answer{Hang: gate}))
	}
	f.send(3*most, 300, ids...)
	f.awaitInFlight(most*len(ids), ids...)
	frozen.freeze()
	seen := f.receiver.Log.Len()
	f.spawn()
	f.receiver.WaitFor(t, seen+len(ids), 30*time.Second) // the new owner has begun with each
	frozen.thaw()
	thawed := time.Now()
	close(gate)
	c := f.delivered(30 * time.Second)
	f.settled(20 * time.Second)
	t.Log(c)
	f.peaks(2*most, ids...)
	_, own := f.repeats()
	if own != 0 {
		t.Errorf("%d attempts were POSTed twice by one process", own)
	}
	if c.Repeats > most*len(ids) {
		t.Errorf("%d repeats of %d that were in flight; thawed at %s", c.Repeats, most*len(ids), thawed.Format(clock))
		f.sampleRepeats(c.Repeats)
	}
}
