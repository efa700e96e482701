package schemas

import "time"

// Health is one record of the health topic, keyed by endpoint id, for an endpoint
// in trouble; a tombstone says that all is well. Only the owner of the partition
// writes it.
type Health struct {
	Claim   int64    `json:"claim"`             // the claim under which it was written
	Next    *int64   `json:"next,omitempty"`    // first offset of hold that is not settled; nil: nothing is held
	Last    *int64   `json:"last,omitempty"`    // last offset of hold that was appended for it
	Held    int      `json:"held,omitempty"`    // records held when it was written
	Since   *Episode `json:"episode,omitempty"` // nil: no failure episode
	Paused  *Pause   `json:"pause,omitempty"`
	Written int64    `json:"written_ms"`
}

// Episode lives from the first failure of an endpoint to its first success after.
type Episode struct {
	FailingSince    time.Time  `json:"failing_since"`
	Attempts        int        `json:"attempts"` // failed ones since then
	LastError       string     `json:"last_error,omitempty"`
	LastStatus      int        `json:"last_status,omitempty"`
	LastClass       ErrorClass `json:"last_class,omitempty"`
	BreakerStep     int        `json:"breaker_step,omitempty"`       // openings in a row; 0: closed
	OpenUntil       time.Time  `json:"open_until,omitzero"`          //
	DisabledVersion int64      `json:"disabled_at_version,omitzero"` // auto-disabled at that config version
	DisabledReason  string     `json:"disabled_reason,omitempty"`
	Notified        []string   `json:"notified,omitempty"` // notices already written
}

// Pause is what a Retry-After asked for.
type Pause struct {
	Until   time.Time `json:"until"`
	Status  int       `json:"status"`
	Version int64     `json:"version"` // endpoint version it refers to; a newer one ends it
}
