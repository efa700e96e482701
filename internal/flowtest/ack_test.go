package flowtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/consume"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// outcomes is one endpoint for each way in which an attempt can end, n of each kind.
// All of them hang until the gate opens; then the flaky ones fail once.
type outcomes struct {
	all, good, flaky, bad []string
	gate                  chan struct{}
}

func (f *flow) outcomes(n int) *outcomes {
	f.t.Helper()
	o := &outcomes{gate: make(chan struct{})}
	for i := range n {
		good, flaky, bad := fmt.Sprintf("good%d", i), fmt.Sprintf("flaky%d", i), fmt.Sprintf("bad%d", i)
		f.endpoint(good)
		f.endpoint(flaky, schedule(time.Second, time.Second))
		f.endpoint(bad, preset("none"))
		o.good, o.flaky, o.bad = append(o.good, good), append(o.flaky, flaky), append(o.bad, bad)
		f.receiver.Script("/"+good, testkit.Always(testkit.Answer{Hang: o.gate}))
		f.receiver.Script("/"+flaky, func(_ int, r *testkit.Received) testkit.Answer {
			if r.Attempt == "1" {
				return testkit.Answer{Hang: o.gate, Status: 503}
			}
			return testkit.Answer{}
		})
		f.receiver.Script("/"+bad, testkit.Always(testkit.Answer{Hang: o.gate, Status: 400}))
	}
	o.all = append(append(append(o.all, o.good...), o.flaky...), o.bad...)
	return o
}

func schedule(delays ...time.Duration) func(*registry.Endpoint) {
	return func(ep *registry.Endpoint) {
		for _, d := range delays {
			ep.Retry.Schedule = append(ep.Retry.Schedule, schemas.Duration(d))
		}
	}
}

func preset(name string) func(*registry.Endpoint) {
	return func(ep *registry.Endpoint) { ep.Retry.Preset = name }
}

func limit(inFlight int) func(*registry.Endpoint) {
	return func(ep *registry.Endpoint) { ep.MaxInFlight = inFlight }
}

// steps are the topics that an outcome may have to be written to.
func (f *flow) steps() []string {
	n := f.names()
	return []string{n.Attempts(), n.Retry(0), n.DLQ()}
}

// ended waits until every delivery of o came to its end, and looks for each.
func (f *flow) ended(o *outcomes) {
	f.t.Helper()
	f.delivered(30 * time.Second)
	letters := f.awaitLetters(len(o.bad))
	for _, l := range letters {
		if l.Reason != schemas.ReasonExhausted {
			f.t.Errorf("%s died of %s", l.ID(), l.Reason)
		}
	}
	f.awaitDelivered(len(o.good) + len(o.flaky))
	f.settled(20 * time.Second)
}

func TestInvariant1NothingIsDoneBeforeItsNextStepIsDurable(t *testing.T) {
	t.Parallel() // most of it is waiting for a session to end
	f := newFlowOn(t, newStoppable(t))
	f.mortal()
	o := f.outcomes(4)
	first := f.spawn()
	f.send(1, 300, o.all...)
	f.awaitInFlight(len(o.all), o.all...)
	allow := f.cluster.refuse(t, f.steps()...)
	close(o.gate)
	f.awaitInFlight(0, o.all...)
	<-time.After(4 * f.cfg.Dispatcher.CommitInterval) // the answers are in, and nothing can be written
	first.kill()
	allow()
	lag, err := f.lag()
	must(t, err)
	if lag != int64(len(o.all)) {
		t.Errorf("%d of %d records were committed though nothing of theirs was written", int64(len(o.all))-lag, len(o.all))
	}
	f.spawn()
	f.ended(o)
	_, own := f.repeats()
	if own != 0 {
		t.Errorf("%d attempts were POSTed twice by one process", own)
	}
}

func TestInvariant2NoPOSTIsRepeatedBecauseAWriteFailed(t *testing.T) {
	f := newFlowOn(t, newStoppable(t))
	o := f.outcomes(4)
	p := f.start()
	f.ready(p)
	f.send(1, 300, o.all...)
	f.awaitInFlight(len(o.all), o.all...)
	allow := f.cluster.refuse(t, f.steps()...)
	close(o.gate)
	f.awaitInFlight(0, o.all...)
	testkit.Eventually(t, 30*time.Second, func() string {
		if p.app.Ready() == nil {
			return "ready while nothing can be written"
		}
		return ""
	})
	allow()
	f.ended(o)
	f.ready(p)
	f.once()
}

func TestInvariant2NoPOSTIsRepeatedBecauseAPartitionWentAndCameBack(t *testing.T) {
	t.Parallel() // most of it is waiting for a drain to end
	f := newFlow(t)
	f.cfg.Dispatcher.DrainBudget = time.Second
	f.opts.Consume = func(c *consume.Config) {
		heartbeats(c)
		c.RevokeBudget = time.Second
	}
	ids := f.endpoints(12)
	gate := make(chan struct{})
	for _, id := range ids {
		f.receiver.Script("/"+id, testkit.Always(testkit.Answer{Hang: gate}))
	}
	stays := f.start()
	f.ready(stays)
	f.send(1, 300, ids...)
	f.awaitInFlight(len(ids), ids...)
	guest := f.start()
	f.receiver.WaitFor(t, len(ids)+1, 30*time.Second) // what was open is repeated by its new owner
	guest.end(t)
	f.send(1, 300, ids...) // to see that the partitions are back
	close(gate)
	f.delivered(30 * time.Second)
	f.settled(20 * time.Second)
	all, own := f.repeats()
	t.Logf("%d repeats", all)
	if own != 0 {
		t.Errorf("%d attempts were POSTed twice by one process", own)
	}
	if all > len(ids) {
		t.Errorf("%d repeats of %d that were in flight", all, len(ids))
	}
}
