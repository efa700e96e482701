//go:build kafka

package flowtest

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/internal/testkit/realkafka"
)

// Three brokers (min.insync.replicas=2, replication 3) and three processes. While
// events flow a broker is killed and comes back, a process is killed and comes back,
// and one is frozen for longer than the session timeout and goes on. By the
// receiver's log nothing is lost, no attempt is made twice by one process, and no
// endpoint sees more than twice its limit.
func TestChaosOnThreeBrokers(t *testing.T) { chaos(t, 3_000, 60, 30*time.Second) }

func TestSoakChaosOnThreeBrokers(t *testing.T) {
	needsBudget(t)
	chaos(t, 27_000, 500, 2*time.Minute) // the load stops a little before the span ends
}

func chaos(t *testing.T, events, endpoints int, span time.Duration) {
	brokers := realkafka.Start(t, realkafka.Config{Brokers: 3})
	if brokers.External() {
		t.Skip("the cluster of MILENA_TEST_BROKERS is not ours to end")
	}
	rng := testkit.Rand(t)
	f := newFlowOn(t, &cluster{kafka: brokers})
	f.mortal()
	ids := f.endpoints(endpoints)
	for _, id := range ids {
		delay := time.Duration(rng.IntN(80)) * time.Millisecond
		f.receiver.Script("/"+id, testkit.Always(testkit.Answer{Delay: delay}))
	}
	procs := []*child{f.spawn(), f.spawn(), f.spawn()}
	flow := f.load(events*9/10/int(span.Seconds()), ids...)

	step := span / 6
	at := func(d time.Duration) { <-time.After(d + time.Duration(rng.Int64N(int64(step/4)))) }
	at(step)
	crashBroker(t, brokers, rng, step)
	t.Logf("process 0 killed with %d requests in flight", f.inFlight(ids...))
	procs[0].kill()
	at(step / 2)
	procs[0] = f.spawn()
	at(step / 2)
	frozen := procs[1]
	t.Logf("process 1 frozen with %d requests in flight", f.inFlight(ids...))
	frozen.freeze()
	<-time.After(f.cfg.Kafka.SessionTimeout + 3*time.Second)
	frozen.thaw()
	at(step)
	flow.stop()

	for i := range 3 {
		if !brokers.Running(i) {
			t.Fatalf("void: broker %d is down, and not by this test", i)
		}
	}
	c := f.delivered(2 * time.Minute)
	f.settled(time.Minute)
	all, own := f.repeats()
	t.Logf("%s; %d attempts repeated, %d of them by the same process", c, all, own)
	if own != 0 {
		t.Errorf("%d attempts were made twice by one process", own)
	}
	f.sampleRepeats(20)
	for _, id := range ids {
		if peak := f.receiver.Peak("/" + id); peak > 2*defaultLimit {
			t.Errorf("%s saw %d requests at once, more than twice its limit", id, peak)
		}
	}
	for _, p := range procs {
		p.terminate()
	}
}

const defaultLimit = 10 // max_in_flight of an endpoint that says none

// crashBroker kills one broker and brings it back while the others go on.
func crashBroker(t *testing.T, brokers *realkafka.Cluster, rng *rand.Rand, down time.Duration) {
	t.Helper()
	i := rng.IntN(3)
	t.Logf("broker %d killed", i)
	must(t, brokers.Kill(i))
	<-time.After(down)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, brokers.Restart(ctx, i))
	t.Logf("broker %d is back", i)
}
