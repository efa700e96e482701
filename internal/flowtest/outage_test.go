package flowtest

import (
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
)

// The broker is away for ten seconds while requests are made and answered: a POST
// that finished keeps its result.
func TestABrokerAwayForTenSecondsCostsNoRepeat(t *testing.T) {
	t.Parallel() // most of it is waiting for the broker
	f := newFlowOn(t, newStoppable(t))
	f.mortal()
	ids := f.endpoints(8)
	for _, id := range ids {
		f.receiver.Script("/"+id, testkit.Always(testkit.Answer{Delay: 20 * time.Millisecond}))
	}
	f.ready(f.start())
	load := f.load(200, ids...)
	f.receiver.WaitFor(t, 100, 30*time.Second)
	f.cluster.stop(t)
	t.Logf("stopped at %s", time.Now().Format(clock))
	<-time.After(10 * time.Second)
	f.cluster.restart(t)
	t.Logf("back at %s", time.Now().Format(clock))
	load.stop()
	c := f.delivered(time.Minute)
	f.settled(20 * time.Second)
	t.Log(c)
	f.once()
}
