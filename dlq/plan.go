package dlq

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Job is what a run shall do, resolved: nothing in it depends on when it is read.
type Job struct {
	Kind     schemas.RunKind
	Who, Why string
	Filter   Filter
	Snapshot Snapshot // nil: the end of now

	ToEndpoint      string  // another endpoint gets it
	Rate            float64 // a second; 0: unlimited
	EndpointRate    float64 // a second for each endpoint; 0: unlimited
	Auto            bool    // the rate follows the age of live deliveries
	Canary          bool    // one for each endpoint first; the rest only where it was delivered
	IncludeDisabled bool    // also for endpoints that are disabled, deleted or unknown
	Export          string  // discard: where the export goes, empty: declined; import: where it comes from

	Force bool // beside a live run on the same endpoints

	resume  string   // id of the run that goes on
	topicID string   // Run.TopicID of that run
	from    Snapshot // Run.From of that run
}

// Plan is a job with the letters that it is about: what a preview shows and a run does.
type Plan struct {
	Job Job
	*Selection
	States map[string]*EndpointState // replay: of the endpoints that get something
	Skip   map[string]int64          // why, how many: selected, but not to be written
	Write  int64                     // how many are to be written

	source *Verified // import: what is in the file
}

// TargetError says that --to-endpoint names an endpoint that can get nothing.
type TargetError struct{ State EndpointState }

func (e *TargetError) Error() string {
	is := strings.TrimPrefix(e.State.Skip, "endpoint_")
	if e.State.Why != "" {
		is += ": " + e.State.Why
	}
	return fmt.Sprintf("--to-endpoint %s cannot get them, it is %s; --include-disabled sends them all the same", e.State.ID, is)
}

// Plan selects the letters of a job. Nothing is written.
func (s *Store) Plan(ctx context.Context, job Job) (*Plan, error) {
	if job.Snapshot == nil {
		snap, err := s.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		job.Snapshot = snap
	}
	unfit := func(*Entry) string { return "" }
	if job.Kind == schemas.RunReplay {
		unfit = func(e *Entry) string { return unsendable(&e.Letter, job.ToEndpoint) }
	}
	sel, err := s.choose(ctx, job.Filter, job.Snapshot, job.from, unfit)
	if err != nil {
		return nil, err
	}
	if now := sel.topicHex(); job.topicID != "" && now != "" && now != job.topicID {
		return nil, fmt.Errorf("%s was deleted and made anew since run %s began: nothing is left of what it selected", s.topic, job.resume)
	}
	p := &Plan{Job: job, Selection: sel, Skip: maps.Clone(sel.Unfit), Write: sel.Count}
	if job.Kind == schemas.RunReplay {
		err = p.lookAtEndpoints(ctx, s)
	}
	return p, err
}

func (p *Plan) lookAtEndpoints(ctx context.Context, s *Store) (err error) {
	ids := slices.Sorted(maps.Keys(p.Shares))
	if p.Job.ToEndpoint != "" {
		ids = []string{p.Job.ToEndpoint}
	}
	if p.Count == 0 && p.Job.ToEndpoint == "" {
		return nil
	}
	if p.States, err = s.endpointStates(ctx, ids); err != nil || p.Job.IncludeDisabled {
		return err
	}
	if p.Job.ToEndpoint != "" {
		if st := p.States[p.Job.ToEndpoint]; st.Skip != "" {
			return &TargetError{*st}
		}
		return nil
	}
	for id, share := range p.Shares {
		if why := p.States[id].Skip; why != "" {
			p.Skip[why] += share.Count
			p.Write -= share.Count
		}
	}
	return nil
}

// skips says why nothing is written for the letters of an endpoint, or nothing.
func (p *Plan) skips(endpoint string) string {
	if p.Job.IncludeDisabled || p.Job.ToEndpoint != "" || p.Job.Kind != schemas.RunReplay {
		return ""
	}
	if st := p.States[endpoint]; st != nil {
		return st.Skip
	}
	return ""
}

// WaitsForBreakers reports whether something is to be sent to an endpoint whose breaker is
// open, and when the last of these breakers lets one delivery through.
func (p *Plan) WaitsForBreakers() (last time.Time, waits bool) {
	if p.Job.Kind != schemas.RunReplay {
		return last, false
	}
	for id := range p.Shares {
		if to := p.Job.ToEndpoint; to != "" {
			id = to
		}
		if st := p.States[id]; st != nil && st.Breaker == "open" && p.skips(id) == "" {
			waits = true
			if st.Until.After(last) {
				last = st.Until
			}
		}
	}
	return last, waits
}

// Takes is how long it will take at the asked rates, at least; 0 if they are unlimited
// or automatic.
func (p *Plan) Takes() time.Duration {
	seconds := 0.0
	if p.Job.Rate > 0 && !p.Job.Auto {
		seconds = float64(p.Write) / p.Job.Rate
	}
	if p.Job.EndpointRate > 0 {
		most := p.Write // of one endpoint
		if p.Job.ToEndpoint == "" {
			most = 0
			for id, share := range p.Shares {
				if p.skips(id) == "" {
					most = max(most, share.Count)
				}
			}
		}
		seconds = max(seconds, float64(most)/p.Job.EndpointRate)
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second)
}

// Delays is how long an endpoint takes for n deliveries by its own limit, at least.
func (st *EndpointState) Delays(n int64) time.Duration {
	if st == nil || st.Limit == nil || st.Limit.Rate <= 0 {
		return 0
	}
	seconds := float64(max(0, n-int64(st.Limit.Size()))) / st.Limit.Rate
	return time.Duration(min(seconds*float64(time.Second), math.MaxInt64)).Round(time.Second)
}

// View is a plan as JSON shows it.
type View struct {
	Matched   int64                   `json:"matched"`
	Write     int64                   `json:"write"`
	Skip      map[string]int64        `json:"skip,omitempty"`
	Bytes     int64                   `json:"payload_bytes"`
	Oldest    time.Time               `json:"oldest_died_at,omitzero"`
	Newest    time.Time               `json:"newest_died_at,omitzero"`
	Endpoints map[string]EndpointView `json:"endpoints"`
	Takes     schemas.Duration        `json:"takes,omitempty"`
	Filter    Filter                  `json:"filter"`
}

// EndpointView is the share of one endpoint.
type EndpointView struct {
	Count   int64                    `json:"count"`
	Reasons map[schemas.Reason]int64 `json:"reasons"`
	State   *EndpointState           `json:"state,omitempty"`
}

// View describes the plan.
func (p *Plan) View() View {
	v := View{Matched: p.Total(), Write: p.Write, Skip: p.Skip, Bytes: p.Bytes, Oldest: p.Oldest, Newest: p.Newest,
		Endpoints: map[string]EndpointView{}, Takes: schemas.Duration(p.Takes()), Filter: p.Job.Filter}
	for id, share := range p.Shares {
		v.Endpoints[id] = EndpointView{Count: share.Count, Reasons: share.Reasons, State: p.States[id]}
	}
	return v
}

// record is the run that a plan becomes.
func (p *Plan) record() (schemas.Run, error) {
	j := &p.Job
	filter, err := json.Marshal(j.Filter)
	if err != nil {
		return schemas.Run{}, err
	}
	return schemas.Run{ID: newRunID(time.Now()), Kind: j.Kind, Who: j.Who, Why: j.Why, Filter: filter,
		Endpoints: sorted(j.Filter.endpoints()), ToEndpoint: j.ToEndpoint, Rate: j.Rate, EndpointRate: j.EndpointRate, Auto: j.Auto,
		IncludeDisabled: j.IncludeDisabled, Canary: j.Canary, Export: j.Export, Snapshot: j.Snapshot, TopicID: p.topicHex(), From: p.From,
		Counts: schemas.RunCounts{Matched: p.Total()}}, nil
}

// Resumable reports whether a run of a kind can go on after it was ended: what is left
// of it can be told by the tombstones that it has written.
func Resumable(kind schemas.RunKind) bool {
	return kind == schemas.RunReplay || kind == schemas.RunDiscard
}

// ResumeJob is the job of a recorded run, to be planned again: the same filter and
// snapshot, minus what is tombstoned meanwhile.
func ResumeJob(run schemas.Run) (Job, error) {
	j := Job{Kind: run.Kind, Who: run.Who, Why: run.Why, Snapshot: run.Snapshot, ToEndpoint: run.ToEndpoint, Rate: run.Rate,
		EndpointRate: run.EndpointRate, Auto: run.Auto, IncludeDisabled: run.IncludeDisabled, Canary: run.Canary, Export: run.Export,
		resume: run.ID, topicID: run.TopicID, from: run.From}
	if !Resumable(run.Kind) {
		return j, fmt.Errorf("run %s is of kind %s, which cannot be resumed; begin it again", run.ID, run.Kind)
	}
	if run.Snapshot == nil {
		return j, fmt.Errorf("run %s has no snapshot", run.ID)
	}
	if err := json.Unmarshal(run.Filter, &j.Filter); err != nil {
		return j, fmt.Errorf("the filter of run %s: %w", run.ID, err)
	}
	return j, nil
}
