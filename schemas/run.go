package schemas

import (
	"encoding/json"
	"time"
)

// RunKind is what a run does to what its filter selects.
type RunKind string

// The kinds.
const (
	RunReplay  RunKind = "replay"  // writes dead letters to deliveries again
	RunDiscard RunKind = "discard" // writes their tombstones
	RunResend  RunKind = "resend"  // writes new deliveries of old events
	RunImport  RunKind = "import"  // writes exported dead letters to dlq
)

// RunState is how far a run has come. A run that is running but was not updated
// for RunStale is interrupted: it may be resumed.
type RunState string

// The states.
const (
	RunRunning   RunState = "running"
	RunDone      RunState = "done"
	RunCancelled RunState = "cancelled"
	RunFailed    RunState = "failed" // Error says why
)

// A runner rewrites its record every RunBeat; one older than RunStale is not live.
const (
	RunBeat  = 5 * time.Second
	RunStale = 30 * time.Second
)

// Run is one record of the runs topic, keyed by ID: a job over many dead letters
// or deliveries. The runner that claimed it is the only writer.
type Run struct {
	ID     string  `json:"id"`
	Kind   RunKind `json:"kind"`
	Who    string  `json:"who"`
	Why    string  `json:"why,omitempty"`
	Runner string  `json:"runner"` // host and process that claimed it last

	Filter     json.RawMessage `json:"filter"`                // as resolved: times are absolute
	Endpoints  []string        `json:"endpoints,omitempty"`   // that it claims; empty: all
	ToEndpoint string          `json:"to_endpoint,omitempty"` // where another endpoint than the letter's gets it
	Rate       float64         `json:"rate,omitempty"`        // a second; 0: unlimited

	EndpointRate    float64 `json:"endpoint_rate,omitempty"`    // a second for each endpoint; 0: unlimited
	Auto            bool    `json:"auto,omitempty"`             // the rate follows the age of live deliveries
	IncludeDisabled bool    `json:"include_disabled,omitempty"` // also for endpoints that are disabled, deleted or unknown
	Canary          bool    `json:"canary,omitempty"`           // one for each endpoint first
	Export          string  `json:"export,omitempty"`           // discard, import: the file

	// Snapshot is the end offset of each partition when the run was made: what
	// lies at or behind it is not the run's.
	Snapshot map[int32]int64 `json:"snapshot"`
	// TopicID is the id of dlq then, in hex: one that was made anew since holds other
	// letters at the same offsets. Empty: not known, or the run is about no dead letters.
	TopicID string `json:"topic_id,omitempty"`
	// From is the lowest offset of each partition that is the run's, where its filter
	// has a limit; nil: it has none.
	From   map[int32]int64 `json:"from,omitempty"`
	Counts RunCounts       `json:"counts"` // as of Updated
	State  RunState        `json:"state"`
	Error  string          `json:"error,omitempty"`

	ResumedBy string    `json:"resumed_by,omitempty"` // who went on with it last
	ResumedAt time.Time `json:"resumed_at,omitzero"`

	Started  time.Time `json:"started"`
	Updated  time.Time `json:"updated"`
	Finished time.Time `json:"finished,omitzero"`
}

// RunCounts counts what a run did, over all its runners.
type RunCounts struct {
	Matched int64            `json:"matched"`           // selected by the filter within the snapshot
	Written int64            `json:"written"`           // acknowledged
	Skipped map[string]int64 `json:"skipped,omitempty"` // why, such as endpoint_disabled
}

// Live reports whether some runner is at work on the run.
func (r *Run) Live(now time.Time) bool {
	return r.State == RunRunning && now.Sub(r.Updated) < RunStale
}

// RunControl is a wish of somebody else's for a run; its key is RunControlKey, so
// that the runner stays the only writer of the run's own record.
type RunControl struct {
	Run    string    `json:"run"`
	Cancel bool      `json:"cancel"`
	Who    string    `json:"who"`
	Why    string    `json:"why,omitempty"`
	At     time.Time `json:"at"`
}

// RunControlKey is the key of the RunControl of a run.
func RunControlKey(run string) string { return run + ".control" }
