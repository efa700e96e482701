package dispatcher

import (
	"net/http"
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
