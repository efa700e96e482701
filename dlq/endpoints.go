package dlq

import (
	"context"
	"encoding/json"
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
	health   *schemas.Health
}

// endpointStates looks up the endpoints of a selection: one reading of the registry,
// and of the health records in their partitions.
func (s *Store) endpointStates(ctx context.Context, ids []string) (map[string]*EndpointState, error) {
	states := make(map[string]*EndpointState, len(ids))
	for _, id := range ids {
		states[id] = &EndpointState{ID: id, Skip: SkipUnknown, Why: "no such endpoint", Breaker: "closed"}
	}
	if err := s.readRegistry(ctx, states); err != nil {
		return nil, err
	}
	err := s.readHealth(ctx, states, map[int32]int64{})
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
		st.judge(now)
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

// readHealth reads the partitions of endpoints from the given offsets on, and moves those.
func (s *Store) readHealth(ctx context.Context, states map[string]*EndpointState, from map[int32]int64) error {
	topic := s.names.Health()
	ends, err := s.reader.Ends(ctx, topic)
	if err != nil {
		return explain(err, topic, "Read")
	}
	wanted := map[int32]bool{}
	for id := range states {
		wanted[kafka.Partition([]byte(id), int32(len(ends)))] = true
	}
	for p := range wanted {
		err := s.reader.ReadForwards(ctx, topic, p, from[p], ends[p], 1<<20, func(recs []schemas.Record) error {
			for i := range recs {
				st := states[string(recs[i].Key)]
				if st == nil {
					continue // of others, and claims of owners
				}
				st.health = nil
				h := new(schemas.Health)
				if recs[i].Value != nil && json.Unmarshal(recs[i].Value, h) == nil {
					st.health = h
				}
			}
			return nil
		})
		if err != nil {
			return explain(err, topic, "Read")
		}
		from[p] = ends[p]
	}
	return nil
}

func (st *EndpointState) judge(now time.Time) {
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
	h := st.health
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
