//go:build kafka

package flowtest

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/lag"
	"github.com/milena-project/milena/internal/testkit"
)

func TestSoakHundredThousandRecordsWaitInTheLongestTier(t *testing.T) {
	testkit.SoakBudget(t)
	waitInTheLongestTier(t, 100_000)
}

// probes are the answers of a process's HTTP endpoints while something happens to it.
type probes struct {
	stop func()

	mu       sync.Mutex
	asked    int
	unwell   []string      // answers of /healthz that were not 200
	notReady time.Duration // from the beginning to the first 503 of /readyz; 0: it never came
	ready    bool          // the last answer of /readyz
}

// probe asks every 100 ms until stop is called.
func (f *flow) probeHTTP(addr string) *probes {
	p := &probes{}
	quit, done := make(chan struct{}), make(chan struct{})
	cl := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(path string) (int, error) {
		resp, err := cl.Get("http://" + addr + path)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		return resp.StatusCode, nil
	}
	begun := time.Now()
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			health, err := ask("/healthz")
			ready, _ := ask("/readyz")
			p.mu.Lock()
			p.asked++
			if health != http.StatusOK {
				p.unwell = append(p.unwell, fmt.Sprintf("after %s: %d %v", time.Since(begun), health, err))
			}
			if ready != http.StatusOK && p.notReady == 0 {
				p.notReady = time.Since(begun)
			}
			p.ready = ready == http.StatusOK
			p.mu.Unlock()
			select {
			case <-quit:
				return
			case <-tick.C:
			}
		}
	}()
	p.stop = sync.OnceFunc(func() {
		close(quit)
		<-done
	})
	f.t.Cleanup(p.stop)
	return p
}

// Kafka is away for five minutes under load: the process stays well, says that it is
// not ready, is not restarted, and by the receiver's log nothing is lost and nothing
// repeated but what R1 allows.
func TestSoakKafkaStoppedForFiveMinutesUnderLoad(t *testing.T) {
	needsBudget(t)
	away(t, 5*time.Minute)
}

func away(t *testing.T, span time.Duration) {
	t.Helper()
	f := newFlowOn(t, newStoppable(t))
	f.mortal()
	ids := f.endpoints(20)
	for _, id := range ids {
		f.receiver.Script("/"+id, testkit.Always(testkit.Answer{Delay: 20 * time.Millisecond}))
	}
	addr := testkit.ReserveAddr(t)
	p := f.spawn(func(c *config.Config) { c.HTTP.Addr = addr })
	load := f.load(200, ids...)
	f.receiver.WaitFor(t, 1_000, time.Minute)
	uncommitted := f.inFlight(ids...) + f.received(time.Second) // what R1 allows to be made again
	f.cluster.stop(t)
	probes := f.probeHTTP(addr)
	<-time.After(span)
	probes.mu.Lock()
	notReady, asked := probes.notReady, probes.asked
	probes.mu.Unlock()
	f.cluster.restart(t)
	testkit.Eventually(t, 2*time.Minute, func() string {
		probes.mu.Lock()
		defer probes.mu.Unlock()
		if !probes.ready {
			return "/readyz says no"
		}
		return ""
	})
	load.stop()
	c := f.delivered(2 * time.Minute)
	f.settled(time.Minute)
	probes.stop()
	all, own := f.repeats()
	t.Logf("away for %s: %d times asked, /healthz was not 200 %d times, /readyz 503 after %s; %s; %d repeats, %d by the same process (R1 allows %d)",
		span, asked, len(probes.unwell), notReady.Round(100*time.Millisecond), c, all, own, uncommitted)
	if len(probes.unwell) > 0 {
		t.Errorf("/healthz: %v", probes.unwell[:min(len(probes.unwell), 5)])
	}
	if notReady == 0 || notReady > 15*time.Second {
		t.Errorf("/readyz said no after %s, more than 15 s", notReady)
	}
	if all > uncommitted || own != 0 {
		t.Errorf("%d repeats, %d of them by the same process", all, own)
	}
	select {
	case <-p.done:
		t.Errorf("the process has ended: %v", p.err)
	default:
	}
	p.terminate()
}

// Three processes are restarted one after the other under load: nothing is repeated,
// each ends within its grace time, and nothing is ready for ten seconds.
func TestSoakRollingRestartOfThreeProcesses(t *testing.T) {
	most := 10 * time.Second
	if testkit.SoakBudget(t) < 3*time.Minute {
		most = time.Minute // a short soak is not alone on its machine
	}
	f := newFlow(t)
	ids := f.endpoints(50)
	for _, id := range ids {
		f.receiver.Script("/"+id, testkit.Always(testkit.Answer{Delay: 30 * time.Millisecond}))
	}
	procs := []*child{f.spawn(), f.spawn(), f.spawn()}
	load := f.load(300, ids...)
	f.receiver.WaitFor(t, 1_000, time.Minute)
	oldest, looks := f.watchOldest()
	for i, p := range procs {
		seen := f.receiver.Log.Len()
		took := p.terminate()
		t.Logf("process %d ended in %s", i, took.Round(time.Millisecond))
		if grace := f.cfg.Dispatcher.DrainBudget + longest; took > grace {
			t.Errorf("process %d took %s, more than its grace time of %s", i, took, grace)
		}
		procs[i] = f.spawn()
		f.receiver.WaitFor(t, seen+1_500, time.Minute)
	}
	load.stop()
	c := f.delivered(time.Minute)
	f.settled(30 * time.Second)
	age, n := oldest(), looks()
	t.Logf("%s; the oldest ready record was %s old in %d looks", c, age.Round(time.Millisecond), n)
	if age >= most {
		t.Errorf("a record was ready for %s", age)
	}
	f.once()
	for _, p := range procs {
		p.terminate()
	}
}

// watchOldest looks again and again how long the oldest record has been ready.
func (f *flow) watchOldest() (oldest func() time.Duration, looks func() int) {
	f.t.Helper()
	r, err := lag.Open(f.cfg.KafkaConfig(f.logs), nil, 20*time.Second)
	must(f.t, err)
	quit, done := make(chan struct{}), make(chan struct{})
	var worst time.Duration
	n := 0
	go func() {
		defer close(done)
		defer r.Close()
		for {
			rep, err := r.Look(f.t.Context(), time.Now(), time.Second)
			if err == nil && rep.Oldest != nil {
				worst = max(worst, rep.At.Sub(rep.Oldest.Since))
			}
			n++
			select {
			case <-quit:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	end := sync.OnceFunc(func() {
		close(quit)
		<-done
	})
	f.t.Cleanup(end)
	return func() time.Duration { end(); return worst }, func() int { end(); return n }
}
