package dispatcher

import (
	"slices"
	"time"

	"github.com/milena-project/milena/schemas"
)

// LaneState is what a lane is doing now, for people who ask why.
type LaneState struct {
	Endpoint    string    `json:"endpoint"`
	Tenant      string    `json:"tenant,omitempty"`
	Partition   int32     `json:"partition"`
	Queued      int       `json:"queued"`
	InFlight    int       `json:"in_flight"`
	Limit       int       `json:"limit"` // concurrent requests that it may have now
	Proven      bool      `json:"proven"`
	UsualMillis float64   `json:"usual_ms,omitempty"`
	OldestOpen  float64   `json:"oldest_open_ms,omitempty"`
	PausedUntil time.Time `json:"paused_until,omitzero"`
	PausedBy    int       `json:"paused_by_status,omitempty"` // 429 or 503; 0: a moment's rest after a fault of our own

	Breaker   BreakerState     `json:"breaker"`
	OpenUntil time.Time        `json:"breaker_open_until,omitzero"`
	Held      int              `json:"held,omitempty"`      // deliveries on hold, as far as is known
	HeldSince time.Time        `json:"held_since,omitzero"` // as long as this process has owned the partition
	Failing   *schemas.Episode `json:"failing,omitempty"`
	Disabled  string           `json:"disabled,omitempty"`     // why it was switched off; the configuration's own state is not meant
	CutOff    time.Time        `json:"cut_off_since,omitzero"` // it is this process that reaches nobody

	Undecided bool   `json:"undecided,omitempty"` // waits for the registry's answer
	WaitsFor  string `json:"waits_for,omitempty"`
}

// Lane reports the state of an endpoint's lane; ok is false where it has none.
func (d *Dispatcher) Lane(endpointID string) (state LaneState, ok bool) {
	s := d.lanes
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byID[endpointID]
	if l == nil {
		return LaneState{}, false
	}
	now := time.Now()
	state = LaneState{
		Endpoint: l.id, Tenant: l.tenant.name, Partition: l.part.number, Queued: l.behind.len(), InFlight: l.inFlight,
		Limit: l.most(), Proven: l.pace.proven, UsualMillis: milliseconds(l.pace.usual),
		OldestOpen: milliseconds(l.oldest(now)), Undecided: l.undecided, WaitsFor: s.waitsFor(l),
		Breaker: l.breaker.state(now), CutOff: s.fault.cutSince,
	}
	if l.pausedUntil.After(now) {
		state.PausedUntil, state.PausedBy = l.pausedUntil, l.pauseStatus
	}
	if l.breaker.open(now) {
		state.OpenUntil = l.breaker.until
	}
	if l.held != nil {
		state.Held, state.HeldSince = l.held.count(), l.held.since
	}
	if l.episode.active() {
		e := l.episode.Episode
		e.Notified = slices.Clone(e.Notified)
		state.Failing = &e
	}
	if l.disabledAt != 0 && !l.enabled() {
		state.Disabled = l.episode.DisabledReason
	}
	return state, true
}

func (s *lanes) waitsFor(l *lane) string {
	if t := l.tenant; l.place == placeRing && !t.inRing {
		return "its tenant's share of requests, or its rate"
	}
	return l.place.String()
}

func (p place) String() string {
	switch p {
	case placeRing:
		return "its turn"
	case placeUnproven:
		return "a slot for endpoints that have not answered well lately"
	case placeSlow:
		return "its slow attempts, or free slots"
	case placeUnsettled:
		return "writes of its partition to Kafka"
	default:
		return ""
	}
}

// Load is how much a Dispatcher has to do at one moment.
type Load struct {
	InFlight int   // POSTs
	Queued   int   // deliveries in lanes
	Bytes    int64 // of those, with their overhead
	Lanes    int
	Held     int // deliveries in the hold topic, of endpoints whose partition is here
}

// Load reports how much there is to do now.
func (d *Dispatcher) Load() Load {
	s := d.lanes
	s.mu.Lock()
	defer s.mu.Unlock()
	load := Load{InFlight: s.inFlight, Queued: s.queued, Bytes: s.bytes, Lanes: len(s.byID)}
	for _, l := range s.byID {
		if l.held != nil {
			load.Held += l.held.count()
		}
	}
	return load
}
