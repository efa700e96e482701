package dlq

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

// Errors of runs; test with errors.Is.
var (
	ErrNoRun     = errors.New("no such run")
	ErrFinished  = errors.New("the run is finished")
	ErrLive      = errors.New("the run is live")
	ErrTaken     = errors.New("another process has taken the run over")
	ErrCancelled = errors.New("the run was cancelled")
)

// BusyError says that another run is live on some of the same endpoints.
type BusyError struct {
	Run       schemas.Run
	Kind      schemas.RunKind // that was asked for
	Endpoints []string        // empty: all
}

func (e *BusyError) Error() string {
	run := fmt.Sprintf("run %s (%s by %s) is at work on ", e.Run.ID, e.Run.Kind, e.Run.Who)
	ways := fmt.Sprintf("wait for it, cancel it (milena runs cancel %s), or use --force", e.Run.ID)
	switch {
	case len(e.Run.Endpoints) == 0:
		return run + "all endpoints; " + ways
	case e.Run.Kind == schemas.RunImport || e.Kind == schemas.RunImport: // whatever endpoints are in the file
		return run + endpointsText(e.Run.Endpoints) + ", and an import and a discard are not at work at once; " + ways
	case len(e.Endpoints) == 0:
		return run + endpointsText(e.Run.Endpoints) + ", and a run without --endpoint claims all endpoints; name those that are meant by --endpoint, " + ways
	}
	return run + "the same endpoints; " + ways
}

func endpointsText(ids []string) string {
	const most = 3
	if len(ids) > most {
		return fmt.Sprintf("%s and %d endpoints more", strings.Join(ids[:most], ", "), len(ids)-most)
	}
	return strings.Join(ids, ", ")
}

// Runs is the table of runs. Every change goes by compare-and-swap and leaves an
// audit record. Close it.
type Runs struct {
	table *registry.Table
	names schemas.Names
	me    string // host and process, for Run.Runner
	door  string
}

// OpenRuns makes a Runs. door is by which one changes come: cli, http, embedded.
func OpenRuns(cfg kafka.Config, door string) *Runs {
	cfg = cfg.WithDefaults()
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	// The random part tells two runners of one process, and a process of the same
	// number after a restart, apart.
	me := fmt.Sprintf("%s/%d/%s", host, os.Getpid(), strings.ToLower(rand.Text()[:6]))
	return &Runs{table: registry.OpenTable(cfg, cfg.Names.Runs()), names: cfg.Names, me: me, door: door}
}

// Close ends the background reading.
func (r *Runs) Close() { r.table.Close() }

// Status is a run with what others wish of it.
type Status struct {
	schemas.Run
	Live    bool                `json:"live"`
	Control *schemas.RunControl `json:"control,omitempty"`
}

// Word is the state in one word: running, interrupted, done, cancelled or failed.
func (s *Status) Word() string {
	if s.State == schemas.RunRunning && !s.Live {
		return "interrupted"
	}
	return string(s.State)
}

// List is all runs, the newest first.
func (r *Runs) List(ctx context.Context) ([]Status, error) {
	var list []Status
	err := r.table.Read(ctx, func(rows registry.Rows) error {
		now := time.Now()
		for row := range rows.All() {
			if run, ok := decodeRun(row); ok {
				list = append(list, statusOf(rows, run, now))
			}
		}
		return nil
	})
	slices.SortFunc(list, func(a, b Status) int { return b.Started.Compare(a.Started) })
	return list, err
}

// Get finds one run; ErrNoRun.
func (r *Runs) Get(ctx context.Context, id string) (Status, error) {
	var st Status
	err := r.table.Read(ctx, func(rows registry.Rows) error {
		run, err := getRun(rows, id)
		st = statusOf(rows, run, time.Now())
		return err
	})
	return st, err
}

func statusOf(rows registry.Rows, run schemas.Run, now time.Time) Status {
	st := Status{Run: run, Live: run.Live(now)}
	if row, ok := rows.Get(schemas.RunControlKey(run.ID)); ok {
		c := new(schemas.RunControl)
		if json.Unmarshal(row.Value, c) == nil {
			st.Control = c
		}
	}
	return st
}

// decodeRun passes over controls and what a newer Milena may keep here.
func decodeRun(row registry.Row) (run schemas.Run, ok bool) {
	if strings.HasSuffix(row.Key, schemas.RunControlKey("")) {
		return run, false
	}
	err := json.Unmarshal(row.Value, &run)
	return run, err == nil && run.ID == row.Key
}

func getRun(rows registry.Rows, id string) (schemas.Run, error) {
	if row, ok := rows.Get(id); ok {
		if run, ok := decodeRun(row); ok {
			return run, nil
		}
	}
	return schemas.Run{}, fmt.Errorf("%w: %s", ErrNoRun, id)
}

// newRunID sorts by time and is short enough to type.
func newRunID(now time.Time) string {
	return "run-" + now.UTC().Format("20060102-150405") + "-" + strings.ToLower(rand.Text()[:6])
}

// claim writes the record of a new run. Unless force, *BusyError when a live run
// has an endpoint in common.
func (r *Runs) claim(ctx context.Context, run *schemas.Run, force bool) error {
	return r.table.Swap(ctx, func(rows registry.Rows) ([]registry.Change, error) {
		if _, taken := rows.Get(run.ID); taken {
			return nil, fmt.Errorf("run id %s is taken", run.ID)
		}
		if err := busy(rows, run, force); err != nil {
			return nil, err
		}
		now := timeNow()
		run.Runner, run.State, run.Started, run.Updated = r.me, schemas.RunRunning, now, now
		return r.changes(run, "start", run.Who, run.Why)
	})
}

// reclaim makes this process the runner of the run that a job resumes, which is not at
// work, at the job's rate; ErrLive, ErrFinished, *BusyError. An earlier wish to cancel is
// gone with it.
func (r *Runs) reclaim(ctx context.Context, job *Job) (schemas.Run, error) {
	var run schemas.Run
	id := job.resume
	err := r.table.Swap(ctx, func(rows registry.Rows) (_ []registry.Change, err error) {
		if run, err = getRun(rows, id); err != nil {
			return nil, err
		}
		now := timeNow()
		if err := MayResume(&run, now); err != nil {
			return nil, err
		}
		if err := busy(rows, &run, job.Force); err != nil {
			return nil, err
		}
		run.Runner, run.State, run.Updated, run.Finished, run.Error = r.me, schemas.RunRunning, now, time.Time{}, ""
		run.Rate, run.Auto, run.ResumedBy, run.ResumedAt = job.Rate, job.Auto, job.Who, now
		changes, err := r.changes(&run, "resume", job.Who, "")
		return append(changes, registry.Change{Key: schemas.RunControlKey(id)}), err
	})
	return run, err
}

// MayResume is ErrLive or ErrFinished if a run cannot be resumed now.
func MayResume(run *schemas.Run, now time.Time) error {
	switch {
	case run.Live(now):
		age := now.Sub(run.Updated)
		left := (schemas.RunStale - age + time.Second - 1).Truncate(time.Second) // it shall be true then
		return fmt.Errorf("%w: %s, updated by %s %s ago; if that process is gone, it can be resumed in %s", ErrLive, run.ID, run.Runner, age.Truncate(time.Second), left)
	case run.State == schemas.RunDone:
		return fmt.Errorf("%w: %s", ErrFinished, run.ID)
	}
	return nil
}

// busy looks for a live run that would disturb this one.
func busy(rows registry.Rows, run *schemas.Run, force bool) error {
	if force {
		return nil
	}
	now := time.Now()
	for row := range rows.All() {
		if other, ok := decodeRun(row); ok && other.ID != run.ID && other.Live(now) && disturb(&other, run) {
			return &BusyError{Run: other, Kind: run.Kind, Endpoints: run.Endpoints}
		}
	}
	return nil
}

// disturb reports whether two runs must not be at work at once. An import only adds; but a
// discard of the same letters would take out again what it adds, and the import brings a
// letter back under the generation that was the newest when it began.
func disturb(a, b *schemas.Run) bool {
	imports := a.Kind == schemas.RunImport || b.Kind == schemas.RunImport
	discards := a.Kind == schemas.RunDiscard || b.Kind == schemas.RunDiscard
	return (!imports || discards) && overlap(a.Endpoints, b.Endpoints)
}

// overlap: no endpoints means all of them.
func overlap(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	return slices.ContainsFunc(a, func(id string) bool { return slices.Contains(b, id) })
}

// beat rewrites the record of a run that this process is the runner of; ErrTaken if
// it is not any more.
func (r *Runs) beat(ctx context.Context, run *schemas.Run) error {
	return r.table.Swap(ctx, func(rows registry.Rows) ([]registry.Change, error) {
		have, err := getRun(rows, run.ID)
		if err != nil {
			return nil, err
		}
		if have.Runner != r.me || have.State != schemas.RunRunning {
			return nil, fmt.Errorf("%w: %s is %s, by %s", ErrTaken, run.ID, have.State, have.Runner)
		}
		run.Runner, run.Updated = r.me, timeNow()
		if run.State == schemas.RunRunning {
			value, err := json.Marshal(run)
			return []registry.Change{{Key: run.ID, Value: value}}, err
		}
		run.Finished = run.Updated
		return r.changes(run, string(run.State), run.Who, run.Error)
	})
}

// cancelled reports whether somebody wishes the run to end, and who and why.
func (r *Runs) cancelled(ctx context.Context, id string) (by string, wished bool, err error) {
	err = r.table.Read(ctx, func(rows registry.Rows) error {
		run, err := getRun(rows, id)
		if err != nil {
			return err
		}
		if c := statusOf(rows, run, time.Now()).Control; c != nil && c.Cancel {
			by, wished = because(c.Who, c.Why), true
		}
		return nil
	})
	return by, wished, err
}

func because(who, why string) string {
	if why == "" {
		return who
	}
	return who + ": " + why
}

// Cancel asks the runner to stop, which it does within two seconds. A run that is
// not at work is cancelled here. ErrNoRun, ErrFinished.
func (r *Runs) Cancel(ctx context.Context, id, who, why string) error {
	return r.table.Swap(ctx, func(rows registry.Rows) ([]registry.Change, error) {
		run, err := getRun(rows, id)
		if err != nil {
			return nil, err
		}
		now := timeNow()
		switch {
		case run.State != schemas.RunRunning:
			return nil, fmt.Errorf("%w: %s is %s", ErrFinished, id, run.State)
		case !run.Live(now):
			run.Runner, run.State, run.Updated, run.Finished = r.me, schemas.RunCancelled, now, now
			run.Error = schemas.CleanText("cancelled after it was interrupted, by "+because(who, why), 512)
			return r.changes(&run, "cancel", who, why)
		}
		value, err := json.Marshal(schemas.RunControl{Run: id, Cancel: true, Who: who, Why: why, At: now})
		if err != nil {
			return nil, err
		}
		audit, err := r.audit(id, "cancel", who, why, now)
		return []registry.Change{{Key: schemas.RunControlKey(id), Value: value}, audit}, err
	})
}

// Ended waits until a run is no longer at work. With an error, the run is as it was last seen.
func (r *Runs) Ended(ctx context.Context, id string) (Status, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last Status
	for {
		st, err := r.Get(ctx, id)
		if err != nil {
			return last, err
		}
		if last = st; st.State != schemas.RunRunning {
			return st, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return last, ctx.Err()
		}
	}
}

func (r *Runs) changes(run *schemas.Run, action, who, why string) ([]registry.Change, error) {
	value, err := json.Marshal(run)
	if err != nil {
		return nil, err
	}
	audit, err := r.audit(run.ID, action, who, why, run.Updated)
	return []registry.Change{{Key: run.ID, Value: value}, audit}, err
}

func (r *Runs) audit(id, action, who, why string, at time.Time) (registry.Change, error) {
	subject := "run/" + id
	value, err := json.Marshal(schemas.Audit{Subject: subject, Action: action, Who: who, Door: r.door, At: at, Why: why})
	return registry.Change{Topic: r.names.Audit(), Key: subject, Value: value}, err
}

func timeNow() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
