package dlq

import (
	"context"
	"time"

	"github.com/milena-project/milena/internal/health"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

// EndpointState is what the registry and the health topic say of one endpoint.
type EndpointState struct {
	ID       string             `json:"id"`
	Skip     string             `json:"skip,omitempty"` // SkipDisabled, SkipDeleted or SkipUnknown
	Why      string             `json:"why,omitempty"`
	Breaker  string             `json:"breaker"` // closed, failing, open, paused; unknown where health may not be read
	Until    time.Time          `json:"until,omitzero"`
	Failing  time.Time          `json:"failing_since,omitzero"`
	Held     int64              `json:"held,omitempty"` // on hold, as of the health record
	Limit    *schemas.RateLimit `json:"rate_limit,omitempty"`
	Endpoint *schemas.Endpoint  `json:"-"` // nil if unknown
}

// endpointStates looks up the endpoints of a selection: one reading of the registry,
// and one of health.
func (s *Store) endpointStates(ctx context.Context, ids []string) (map[string]*EndpointState, error) {
	states := make(map[string]*EndpointState, len(ids))
	for _, id := range ids {
		states[id] = &EndpointState{ID: id, Skip: SkipUnknown, Why: "no such endpoint", Breaker: "closed"}
	}
	if err := s.readRegistry(ctx, states); err != nil {
		return nil, err
	}
	var trouble health.Topic
	err := s.readHealth(ctx, &trouble, ids...)
	if kafka.IsDenied(err) { // it is for the preview; nothing is decided by it but an automatic disabling
		s.log.Warn("health may not be read, so breakers are not known", "err", err)
		for _, st := range states {
			st.Breaker = "unknown"
		}
	} else if err != nil {
		return nil, err
	}
	now := time.Now()
	for _, st := range states {
		st.judge(trouble.Of(st.ID), now)
	}
	return states, nil
}

func (s *Store) readRegistry(ctx context.Context, states map[string]*EndpointState) error {
	table := registry.OpenTable(s.cfg, s.names.Endpoints())
	defer table.Close()
	err := table.Read(ctx, func(rows registry.Rows) error {
		for id, st := range states {
			row, ok := rows.Get(id)
			if !ok {
				continue
			}
			ep, err := row.Endpoint()
			if err != nil { // of one endpoint; the others' letters can go
				st.Why = "its record in the registry is unreadable; milena endpoint list says why"
				continue
			}
			registry.Bound(ep, schemas.DefaultMaxAge) // as processes take it
			st.Endpoint = ep
		}
		return nil
	})
	return explain(err, s.names.Endpoints(), "Read")
}

// readHealth reads what is new of endpoints; of all if none is named.
func (s *Store) readHealth(ctx context.Context, trouble *health.Topic, ids ...string) error {
	topic := s.names.Health()
	return explain(trouble.Read(ctx, s.reader, topic, ids...), topic, "Read")
}

// judge says what becomes of what is sent to it, by what its owner wrote; nil: it is not in trouble.
func (st *EndpointState) judge(h *schemas.Health, now time.Time) {
	if ep := st.Endpoint; ep != nil {
		st.Limit = ep.RateLimit
		st.Skip, st.Why = "", ""
		switch ep.State {
		case schemas.StateDeleted:
			st.Skip, st.Why = SkipDeleted, "deleted on "+ep.UpdatedAt.Format(time.RFC3339)
		case schemas.StateDisabled:
			st.Skip, st.Why = SkipDisabled, ep.Reason
		}
	}
	if h == nil {
		return
	}
	st.Held = int64(h.Held)
	switch now := health.Of(st.Endpoint, h, now); now.State {
	case health.Disabled:
		if st.Skip == "" {
			st.Skip, st.Why = SkipDisabled, now.Why
		}
	case health.Failing, health.Open, health.Paused:
		st.Breaker, st.Failing, st.Until = string(now.State), now.Since, now.Until
	}
}
