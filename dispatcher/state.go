package dispatcher

import (
	"cmp"
	"runtime"
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
	HeldSince time.Time        `json:"held_since,omitzero"` // when what has been there longest was put there
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
		state.OpenUntil = l.breaker.until.UTC()
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

// LaneActivity is what a lane does now, in one word.
type LaneActivity string

// The activities; the first that holds is the lane's.
const (
	LaneUndecided LaneActivity = "undecided" // the registry is asked
	LaneHeld      LaneActivity = "held"      // something is on hold
	LanePaused    LaneActivity = "paused"    // a Retry-After has not passed
	LaneSending   LaneActivity = "sending"
	LaneQueued    LaneActivity = "queued" // something waits for a turn or a slot
	LaneIdle      LaneActivity = "idle"
)

func (l *lane) activity(now time.Time) LaneActivity {
	switch {
	case l.undecided:
		return LaneUndecided
	case l.held != nil:
		return LaneHeld
	case l.pausedUntil.After(now):
		return LanePaused
	case l.inFlight > 0:
		return LaneSending
	case l.behind.len()+l.ahead.len() > 0:
		return LaneQueued
	default:
		return LaneIdle
	}
}

// Load is how much a Dispatcher has to do at one moment, and how its lanes are.
type Load struct {
	InFlight   int   // POSTs
	Queued     int   // deliveries in lanes
	Bytes      int64 // of those, with their overhead
	Lanes      int
	Held       int       // deliveries in the hold topic, of endpoints whose partition is here
	OldestHeld time.Time // when what has been there longest was put there; zero: nothing is held
	CutOff     time.Time // since when this process reaches hardly anybody; zero: it does
	Failing    int       // endpoints that have failed since their last success, or are switched off for it
	Activities map[LaneActivity]int
	Breakers   map[BreakerState]int
	Worst      []Worst // the worst first, at most MostWorst
}

// Worst is an endpoint that stands out by what waits for it, or by how long it has failed.
type Worst struct {
	Endpoint string
	Waiting  int       // deliveries queued and on hold
	Since    time.Time // it has failed; zero: it has not
	Why      string    // disabled, breaker, paused, held, failing or queued
}

// MostWorst is how many endpoints Load names.
const MostWorst = 20

// Load reports how much there is to do now. It looks at every lane once, but not at all
// of them at the same moment: what moves from one to another meanwhile may count twice
// or not at all.
func (d *Dispatcher) Load() Load { return d.load(runtime.Gosched) }

// load calls rest, without the lock, after each turn.
func (d *Dispatcher) load(rest func()) Load {
	s := d.lanes
	now := time.Now()
	s.mu.Lock()
	load := Load{
		InFlight: s.inFlight, Queued: s.queued, Bytes: s.bytes, Lanes: len(s.byID), CutOff: s.fault.cutSince,
		Activities: map[LaneActivity]int{}, Breakers: map[BreakerState]int{},
	}
	s.mu.Unlock()
	s.eachResting(rest, func(l *lane) {
		load.Activities[l.activity(now)]++
		load.Breakers[l.breaker.state(now)]++
		if l.held != nil {
			load.Held += l.held.count()
			if load.OldestHeld.IsZero() || l.held.since.Before(load.OldestHeld) {
				load.OldestHeld = l.held.since
			}
		}
		if l.episode.active() {
			load.Failing++
		}
		if w := l.worst(now); w.Why != "" {
			load.consider(w)
		}
	})
	return load
}

// consider keeps the worst in order.
func (load *Load) consider(w Worst) {
	at, _ := slices.BinarySearchFunc(load.Worst, w, worse)
	if at == MostWorst {
		return
	}
	if len(load.Worst) == MostWorst {
		load.Worst = load.Worst[:MostWorst-1]
	}
	load.Worst = slices.Insert(load.Worst, at, w)
}

// worse orders by what waits, then by how long it has failed, then by name.
func worse(a, b Worst) int {
	if n := cmp.Compare(b.Waiting, a.Waiting); n != 0 {
		return n
	}
	if x, y := a.Since.IsZero(), b.Since.IsZero(); x != y {
		if x {
			return 1
		}
		return -1
	}
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Endpoint, b.Endpoint))
}

// worst is the lane as it stands among others; Why is empty where nothing is wrong.
func (l *lane) worst(now time.Time) Worst {
	w := Worst{Endpoint: l.id, Waiting: l.behind.len() + l.ahead.len()}
	if l.held != nil {
		w.Waiting = l.behind.len() + l.held.count()
	}
	if l.episode.active() {
		w.Since = l.episode.FailingSince
	}
	switch {
	case l.disabledAt != 0 && !l.enabled():
		w.Why = "disabled"
	case !l.breaker.closed():
		w.Why = "breaker"
	case l.pausedUntil.After(now):
		w.Why = "paused"
	case l.held != nil:
		w.Why = "held"
	case l.episode.active():
		w.Why = "failing"
	case w.Waiting > 0:
		w.Why = "queued"
	}
	return w
}
