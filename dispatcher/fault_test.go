package dispatcher

import (
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

// network is a world of endpoints on hosts of their own, each sent to twice a second.
type network struct {
	*world
	ids []string
}

func newNetwork(t *testing.T, endpoints int) *network {
	t.Helper()
	n := &network{world: newWorld(t, Config{})}
	for i := range endpoints {
		id := "e" + strconv.Itoa(i)
		n.ids = append(n.ids, id)
		n.endpoint(id, func(e *Endpoint) { e.URL = &url.URL{Scheme: "http", Host: id + ".test", Path: "/" + id} })
	}
	return n
}

func (n *network) traffic(d time.Duration) {
	for range d / (500 * time.Millisecond) {
		for _, id := range n.ids {
			n.send(id, 1)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// charged counts attempts that failed and were counted, and endpoints that are
// given a rest for it.
func (n *network) charged() (attempts, breakers int) {
	synctest.Wait()
	n.mu.Lock()
	for _, a := range n.logged {
		if a.Outcome != schemas.OutcomeDelivered {
			attempts++
		}
	}
	n.mu.Unlock()
	n.d.lanes.mu.Lock()
	defer n.d.lanes.mu.Unlock()
	for _, l := range n.d.lanes.byID {
		if !l.breaker.closed() || l.episode.active() {
			breakers++
		}
	}
	return attempts, breakers
}

func well(*http.Request) (*http.Response, error) {
	time.Sleep(5 * time.Millisecond)
	return status(200), nil
}

func refused(*http.Request) (*http.Response, error) { return nil, errRefused }

// blackhole swallows packets: a dial gives up after ten seconds.
func blackhole(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(10 * time.Second):
		return nil, errRefused
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func TestTheNetworkAwayForAMinuteIsNobodysFailure(t *testing.T) {
	for name, c := range map[string]struct {
		away      func(*http.Request) (*http.Response, error)
		connected bool
		back      time.Duration
	}{
		"no route":                 {away: refused, back: 3 * time.Second},
		"packets are swallowed":    {away: blackhole, back: 12 * time.Second},
		"kept connections hang on": {away: hang, connected: false, back: 17 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t, 40)
			n.answers(well)
			n.traffic(5 * time.Second)
			n.connects.Store(c.connected)
			n.answers(c.away)
			synctest.Wait()
			n.mu.Lock()
			before := len(n.posts)
			n.mu.Unlock()
			n.traffic(time.Minute)
			n.mu.Lock()
			sent := len(n.posts) - before
			n.mu.Unlock()
			if most := 40*DefaultEndpointMaxInFlight + 60*4; sent > most {
				t.Errorf("%s: %d POSTs in the minute, want a few probes a second", name, sent)
			}
			if attempts, breakers := n.charged(); attempts > 0 || breakers > 0 {
				t.Errorf("%s: %d attempts and %d endpoints were charged", name, attempts, breakers)
			}
			n.connects.Store(true)
			n.answers(well)
			time.Sleep(c.back)
			n.traffic(2 * time.Second)
			time.Sleep(10 * time.Second)
			n.see(func() {
				if want := 40 * (10 + 120 + 4); len(n.done) != want {
					t.Errorf("%s: %d of %d were delivered after the network was back", name, len(n.done), want)
				}
			})
			if attempts, breakers := n.charged(); attempts > 0 || breakers > 0 {
				t.Errorf("%s: %d attempts and %d endpoints were charged afterwards", name, attempts, breakers)
			}
		})
	}
}

func TestOneEndpointThatCannotBeReachedIsChargedWithinTheDoubt(t *testing.T) {
	for _, others := range []int{0, 1, 20} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t, 1+others)
			n.answers(well)
			n.traffic(5 * time.Second)
			n.answers(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/e0" {
					return refused(r)
				}
				return well(r)
			})
			n.traffic(doubtMost + 500*time.Millisecond)
			if attempts, _ := n.charged(); attempts == 0 {
				t.Errorf("beside %d others that are well its failure was not counted", others)
			}
			n.traffic(10 * time.Second)
			if state, _ := n.d.Lane("e0"); !n.d.lanes.fault.cutSince.IsZero() || state.Proven {
				t.Errorf("beside %d others: %+v", others, state)
			}
		})
	}
}

func TestAProviderThatGoesDownIsNotOurNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 60)
		n.answers(well)
		n.traffic(5 * time.Second)
		n.answers(func(r *http.Request) (*http.Response, error) {
			if i, _ := strconv.Atoi(r.URL.Path[2:]); i < 20 {
				return refused(r)
			}
			return well(r)
		})
		n.traffic(30 * time.Second)
		if attempts, breakers := n.charged(); breakers != 20 || attempts < 60 {
			t.Errorf("%d attempts and %d endpoints charged, want those 20 that are down", attempts, breakers)
		}
	})
}

func TestAProxyThatIsDownStopsTheSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 30)
		n.d.sender.classify = func(error) schemas.ErrorClass { return schemas.ClassProxy }
		n.answers(well)
		n.traffic(3 * time.Second)
		n.answers(refused)
		n.traffic(20 * time.Second)
		if attempts, breakers := n.charged(); attempts > 0 || breakers > 0 {
			t.Errorf("%d attempts and %d endpoints were charged", attempts, breakers)
		}
		n.answers(well)
		time.Sleep(5 * time.Second)
		n.see(func() {
			if want := 30 * (6 + 40); len(n.done) != want {
				t.Errorf("%d of %d delivered", len(n.done), want)
			}
		})
	})
}
