package dlq

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/milena-project/milena/internal/health"
	"github.com/milena-project/milena/internal/kafka"
)

// Wait is why deliveries of an endpoint have not come to an end, as far as the health
// topic and the attempts tell.
type Wait struct {
	Breaker string    `json:"breaker"` // closed, failing, open, paused; unknown where health could not be read
	Until   time.Time `json:"until,omitzero"`
	Failing time.Time `json:"failing_since,omitzero"`
	Held    int64     `json:"held,omitempty"`    // of the endpoint, of whichever run
	NextTry time.Time `json:"next_try,omitzero"` // the earliest of those that are retrying
}

const lookEvery = 2 * time.Second

// looker follows the health records of endpoints: what was read is not read again.
type looker struct {
	states map[string]*EndpointState
	health health.Topic
	at     time.Time
	known  bool // health was read, and may be
}

// look reads what is new in health of the endpoints that are waited for, now and then.
func (f *follower) look(ctx context.Context) {
	l := &f.looks
	if time.Since(l.at) < lookEvery {
		return
	}
	l.at = time.Now()
	if l.states == nil {
		l.states = map[string]*EndpointState{}
		f.mu.Lock()
		for _, id := range f.names {
			l.states[id] = &EndpointState{ID: id}
		}
		f.mu.Unlock()
	}
	err := f.store.readHealth(ctx, &l.health, slices.Collect(maps.Keys(l.states))...)
	switch {
	case err == nil:
		l.known = true
	case kafka.IsDenied(err):
		l.known = false
	case ctx.Err() == nil:
		f.store.log.Warn("health cannot be read, trying again", "run", f.run, "err", err)
	}
	for _, st := range l.states {
		st.Breaker, st.Until, st.Failing, st.Held = "closed", time.Time{}, time.Time{}, 0
		if !l.known {
			st.Breaker = "unknown"
			continue
		}
		st.judge(l.health.Of(st.ID), l.at)
	}
}

// explainTo says for each endpoint with something open what it waits for; f.mu is held.
func (f *follower) explainTo(out *Outcomes) {
	if f.looks.states == nil {
		return
	}
	out.Waits = map[string]Wait{}
	for id, c := range out.Endpoints {
		if st := f.looks.states[id]; st != nil && c.Retrying+c.Open > 0 {
			out.Waits[id] = Wait{Breaker: st.Breaker, Until: st.Until, Failing: st.Failing, Held: st.Held}
		}
	}
	for _, fo := range f.open {
		state := fo.state &^ copied
		if state < retrying {
			continue
		}
		id, next := f.names[fo.endpoint], f.began.Add(time.Duration(state-retrying)*time.Second)
		if w, ok := out.Waits[id]; ok && (w.NextTry.IsZero() || next.Before(w.NextTry)) {
			w.NextTry = next
			out.Waits[id] = w
		}
	}
}

// retryAt is the state of a delivery that is tried again at a time, to the second above.
func (f *follower) retryAt(next time.Time) followed {
	wait := next.Sub(f.began) + time.Second - 1
	return retrying + followed(max(0, min(wait/time.Second, 1<<30)))
}
