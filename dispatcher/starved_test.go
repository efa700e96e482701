package dispatcher

import (
	"math"
	"net/http"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"
)

func TestAProcessThatStandsStillForAMomentPutsNoBusyLaneOnHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", func(ep *Endpoint) { ep.MaxInFlight = 10 })
		began := time.Now()
		w.answers(func(*http.Request) (*http.Response, error) {
			took := 10 * time.Millisecond
			if since := time.Since(began); since >= 500*time.Millisecond && since < 510*time.Millisecond {
				took = 500 * time.Millisecond
			}
			time.Sleep(took)
			return status(200), nil
		})
		w.send("e", 1000) // of which it takes 1,000 a second
		for range 20 {
			w.send("e", 1)
			time.Sleep(50 * time.Millisecond)
		}
		w.see(func() {
			if n := len(w.topics.hold); n != 0 {
				t.Errorf("%d records on hold of an endpoint that is well", n)
			}
		})
	})
}

func TestAStarvedProcessGoesByTheLeastThatAnAttemptTakes(t *testing.T) {
	now := time.Now()
	s := newLanes(Config{}.WithDefaults(), nil, nil)
	l := &lane{pace: pace{usual: 50 * time.Millisecond, least: 5 * time.Millisecond}}
	if each := s.expected(l, now); each != l.pace.usual {
		t.Errorf("an attempt is expected to take %s, want the usual %s", each, l.pace.usual)
	}
	s.starved.until = now.Add(time.Second)
	if each := s.expected(l, now); each != l.pace.least {
		t.Errorf("while the process waits for the processor %s, want %s", each, l.pace.least)
	}
}

func TestItIsStarvedWhereOneGoroutineOfTenWaitedForAThread(t *testing.T) {
	now := time.Now()
	// Buckets of the waits below 0.1 ms, 1 ms, 10 ms and above; the counts add up, as Go's do.
	seen := &metrics.Float64Histogram{Buckets: []float64{math.Inf(-1), 1e-4, 1e-3, 1e-2, math.Inf(1)}, Counts: []uint64{0, 900, 0, 100}}
	var s starved
	s.weigh(seen, now)
	if !s.now(now) {
		t.Error("of the time of the start it says that all was well")
	}
	for _, c := range []struct {
		name   string
		more   []uint64
		should bool
	}{
		{"all went at once", []uint64{80, 20, 0, 0}, false},
		{"nine of a hundred waited", []uint64{50, 41, 9, 0}, false},
		{"ten of a hundred waited", []uint64{50, 40, 5, 5}, true},
		{"all waited", []uint64{0, 0, 0, 3}, true},
		{"nothing ran", []uint64{0, 0, 0, 0}, false},
	} {
		now = now.Add(time.Hour)
		for i, n := range c.more {
			seen.Counts[i] += n
		}
		s.weigh(seen, now)
		if s.now(now) != c.should {
			t.Errorf("%s: starved is %v", c.name, !c.should)
		}
		if c.should && (!s.now(now.Add(starvedHold-1)) || s.now(now.Add(starvedHold))) {
			t.Errorf("%s: it does not count for %s", c.name, starvedHold)
		}
	}
}

func TestTheSchedulerTellsHowLongGoroutinesWait(t *testing.T) {
	var s starved
	s.look(time.Now())
	if len(s.before) == 0 {
		t.Error("Go's runtime has no such histogram any more")
	}
}
