package schemas

import "time"

// Health is one record of the health topic, keyed by endpoint id, for an endpoint
// in trouble; a tombstone says that all is well. Only the owner of the partition
// writes it.
type Health struct {
	Claim     int64      `json:"claim"`                   // the claim under which it was written
	Version   int64      `json:"version,omitempty"`       // of the endpoint's configuration that was in use; a newer one ends episode and pause
	Next      *int64     `json:"next,omitempty"`          // first offset of hold that is not settled; nil: nothing is held
	Last      *int64     `json:"last,omitempty"`          // last offset of hold that was appended for it
	Done      [][2]int64 `json:"done,omitempty"`          // of hold above next, ranges [from, to) in which all of the endpoint's are settled
	Held      int        `json:"held,omitempty"`          // records held when it was written
	HeldSince int64      `json:"held_since_ms,omitempty"` // when what has been held longest was put on hold
	Since     *Episode   `json:"episode,omitempty"`       // nil: no failure episode
	Paused    *Pause     `json:"pause,omitempty"`
	Written   int64      `json:"written_ms"`
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
	DisabledAt      time.Time  `json:"disabled_at,omitzero"`
	Notified        []string   `json:"notified,omitempty"` // notices already written
}

// Pause is what a Retry-After asked for.
type Pause struct {
	Until   time.Time `json:"until"`
	Status  int       `json:"status"`
	Version int64     `json:"version"` // endpoint version it refers to; a newer one ends it
}

// ClaimKey begins the key of every claim in the health topic, which no endpoint id
// does. What follows differs from claim to claim, so that compaction does not take
// one that counts for the sake of a later one that does not.
const ClaimKey = "!claim"

// Claim is one owner's claim on a partition.
type Claim struct {
	Number  int64 `json:"number"`   // the offset of its record in health
	HoldEnd int64 `json:"hold_end"` // the end of hold before it was written
}

// ClaimRecord is what an owner writes into health when it takes a partition over.
// It counts if its epoch is higher than that of every claim before it: a writer
// takes one more than the highest that it has read, so of two that have read the
// same the first to land counts, and the other learns it by reading on. A health
// record counts if it carries the claim that was the last one at its offset; a record
// of hold, if it lies before the HoldEnd of the claim that follows its own.
type ClaimRecord struct {
	Epoch   int64   `json:"epoch"`
	HoldEnd int64   `json:"hold_end"`
	Earlier []Claim `json:"earlier,omitempty"` // ascending, as far down as records on hold may go back
	Process string  `json:"process,omitempty"` // who it is, for people
}
