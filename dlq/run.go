package dlq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/milena-project/milena/schemas"
)

const (
	watchEvery  = time.Second              // how often a runner looks whether it was cancelled
	silentAfter = schemas.RunStale * 5 / 6 // without a beat a runner writes nothing more
)

// Options are what a run needs beside its plan. The zero value is good.
type Options struct {
	Started    func(run schemas.Run) // once the run is claimed
	Progress   func(Progress)        // four times a second, from one goroutine, and once at the end
	Stdout     io.Writer             // where a discard's export goes whose name is "-"
	Source     io.ReadSeeker         // import: the export
	CanaryWait time.Duration         // for the outcomes of canaries; default two minutes
	Wait       bool                  // then follow the outcomes of what was written
	WaitFor    time.Duration         // at most, once what there is was read; 0: for ever
	Following  func(Outcomes)        // while waiting, once a second
}

// Progress is how far a run has come.
type Progress struct {
	Run     string
	Total   int64 // to be written by this runner
	Written int64 // acknowledged
	Settled int64 // tombstoned too
	Skipped int64
	Rate    float64 // allowed now; 0: unlimited
	Probing bool    // with canaries; the rest comes afterwards
	Waiting bool    // for the outcomes of canaries
}

// Report is what became of a run.
type Report struct {
	Run      schemas.Run `json:"run"`
	Settled  int64       `json:"settled"`
	Exported string      `json:"exported_to,omitempty"` // discard: the file of this runner's export
	Outcomes *Outcomes   `json:"outcomes,omitempty"`    // where Options.Wait was given
}

// runner is one process at work on one run.
type runner struct {
	store  *Store
	runs   *Runs
	plan   *Plan
	opts   Options
	writer writer
	stop   context.CancelCauseFunc

	run      schemas.Run // as it was claimed; only State and Error change later
	exported string      // set by work, before anything is discarded
	written  atomic.Int64
	settled  atomic.Int64
	before   atomic.Int64 // letters that earlier runners of the run have settled
	lastOK   atomic.Int64 // unix ns of the last beat that was written
	probing  atomic.Bool  // with canaries
	waiting  atomic.Bool  // for the outcomes of canaries

	mu      sync.Mutex // guards skipped and gone
	skipped map[string]int64
	gone    seen // keys of letters that were settled since the snapshot

	pace *pace
	room *semaphore.Weighted // bytes of letters that are written and not settled
}

// Execute claims a run for the plan, or takes the resumed one over, and does it. It
// returns when all is acknowledged, or after ctx ended, as soon as what was under
// way is. The error is nil only if the run is done; ErrCancelled (by another
// shell), ErrTaken, *BusyError and the end of ctx can be told apart with errors.Is.
func (s *Store) Execute(ctx context.Context, plan *Plan, runs *Runs, opts Options) (Report, error) {
	r := &runner{store: s, runs: runs, plan: plan, opts: opts, skipped: map[string]int64{}}
	if plan.Job.Auto {
		if _, err := s.oldestReady(ctx); err != nil {
			return Report{}, fmt.Errorf("an automatic rate goes by the age of live deliveries: %w", err)
		}
	}
	w, err := s.newWriter() // before the claim: what cannot write must not keep others out
	if err != nil {
		return Report{}, err
	}
	r.writer = w
	if err := r.claim(ctx); err != nil {
		return Report{}, errors.Join(explain(err, s.names.Runs(), "Write"), w.Close(ctx))
	}
	maps.Copy(r.skipped, plan.Skip)
	if opts.Started != nil {
		opts.Started(r.run)
	}
	work, stop := context.WithCancelCause(ctx)
	r.stop = stop
	r.room = semaphore.NewWeighted(inFlightBytes)
	r.pace = newPace(plan.Job.Rate, plan.Job.EndpointRate)
	var outcomes *follower
	// What earlier runners wrote is not known here, and a resend has no id before it is
	// written: both are found in deliveries afterwards.
	rejoins := plan.Job.resume != "" || plan.Job.Kind == schemas.RunResend
	if (opts.Wait && !rejoins) || plan.Job.Canary {
		if outcomes, err = s.follow(ctx, r.run.ID, plan); err != nil {
			err = fmt.Errorf("the outcomes cannot be followed: %w", err)
		}
	}
	if err == nil {
		err = r.work(work, outcomes)
	}
	if cause := context.Cause(work); err != nil && cause != nil && !errors.Is(err, cause) {
		err = cause
	}
	stop(nil)
	run, err := r.finish(ctx, err)
	rep := Report{Run: run, Settled: r.settled.Load(), Exported: r.exported}
	switch {
	case err != nil || !opts.Wait:
	case rejoins:
		rep.Outcomes, err = s.Follow(ctx, &run, opts)
	default:
		outcomes.merged = max(0, run.Counts.Written-int64(len(outcomes.open))) // all is acknowledged
		rep.Outcomes, err = outcomes.wait(ctx, opts.bound(), opts)
		err = undelivered(&run, rep.Outcomes, err)
	}
	return rep, err
}

func (r *runner) claim(ctx context.Context) (err error) {
	job := &r.plan.Job
	if job.resume == "" {
		if r.run, err = r.plan.record(); err != nil {
			return err
		}
		err = r.runs.claim(ctx, &r.run, job.Force)
	} else {
		r.run, err = r.runs.reclaim(ctx, job)
	}
	r.lastOK.Store(r.run.Updated.UnixNano()) // not later: others go by the record
	return err
}

// work does the job beside the goroutines that keep its record.
func (r *runner) work(ctx context.Context, outcomes *follower) error {
	side, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { r.beats(side) })
	wg.Go(func() {
		r.watches(side, func(ctx context.Context) (string, bool, error) { return r.runs.cancelled(ctx, r.run.ID) })
	})
	wg.Go(func() { r.reports(side) })
	if r.plan.Job.Auto {
		wg.Go(func() { r.adapts(side) })
	}
	var err error
	switch r.plan.Job.Kind {
	case schemas.RunReplay:
		err = r.replay(ctx, outcomes)
	case schemas.RunDiscard:
		err = r.discard(ctx)
	case schemas.RunImport:
		err = r.imports(ctx)
	case schemas.RunResend:
		err = r.resend(ctx)
	default:
		err = fmt.Errorf("a run cannot be a %s", r.plan.Job.Kind)
	}
	if err == nil {
		err = r.drain(ctx)
	}
	if err == nil {
		r.countGone()
	}
	end()
	wg.Wait()
	return err
}

// finish waits for what is under way and writes the last record of the run.
func (r *runner) finish(ctx context.Context, err error) (schemas.Run, error) {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.store.drainFor)
	defer cancel()
	_ = r.drain(closing) // before the writer is closed, which takes no tombstone then
	if werr := r.writer.Close(closing); err == nil && werr != nil {
		err = fmt.Errorf("not all writes were acknowledged: %w", werr)
	}
	if r.opts.Progress != nil {
		r.opts.Progress(r.progress())
	}
	switch {
	case errors.Is(err, ErrTaken):
		return r.snapshot(), err // it is another runner's record now
	case err == nil:
		r.run.State = schemas.RunDone
	case errors.Is(err, ErrCancelled):
		r.run.State, r.run.Error = schemas.RunCancelled, schemas.CleanText(err.Error(), 512)
	case ctx.Err() != nil:
		r.run.State, r.run.Error = schemas.RunCancelled, "ended by a signal"
	default:
		r.run.State, r.run.Error = schemas.RunFailed, schemas.CleanText(err.Error(), 512)
	}
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), r.store.drainFor)
	defer cancelLast()
	run := r.snapshot()
	if berr := r.runs.beat(last, &run); berr != nil {
		err = errors.Join(err, fmt.Errorf("the end of run %s is not recorded: %w", run.ID, berr))
	}
	return run, err
}

func (r *runner) snapshot() schemas.Run {
	run := r.run
	others := r.run.Counts.Skipped[SkipSettled] // while earlier runners were at work; the rest is planned again
	if r.plan.Job.resume != "" {
		// The last record of a runner that was killed is up to five seconds old, and of
		// what it has written some may not be settled, which is left then.
		run.Counts.Written = min(max(run.Counts.Written, r.before.Load()), run.Counts.Matched-r.plan.Total()-others)
	}
	run.Counts.Written += r.written.Load()
	r.mu.Lock()
	run.Counts.Skipped = maps.Clone(r.skipped)
	r.mu.Unlock()
	if others > 0 {
		run.Counts.Skipped[SkipSettled] += others
	}
	return run
}

func (r *runner) skip(why string) {
	r.mu.Lock()
	r.skipped[why]++
	r.mu.Unlock()
}

// ticks goes round once every d until the context ends.
func ticks(ctx context.Context, d time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				if !yield(now) {
					return
				}
			}
		}
	}
}

// beats rewrites the record. A runner that cannot, writes nothing more after a
// while: somebody else may take the run over.
func (r *runner) beats(ctx context.Context) {
	for range ticks(ctx, schemas.RunBeat) {
		run := r.snapshot()
		switch err := r.runs.beat(ctx, &run); {
		case err == nil:
			r.lastOK.Store(run.Updated.UnixNano())
		case errors.Is(err, ErrTaken):
			r.stop(err)
			return
		case ctx.Err() == nil:
			r.store.log.Warn("the run's record cannot be written, trying again", "run", r.run.ID, "err", err)
		}
	}
}

// live waits while the last beat is so old that another runner may take over.
func (r *runner) live(ctx context.Context) error {
	for time.Since(time.Unix(0, r.lastOK.Load())) > silentAfter {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return ctx.Err()
}

// watches looks again and again whether somebody wishes the run to end.
func (r *runner) watches(ctx context.Context, look func(context.Context) (by string, wished bool, err error)) {
	for range ticks(ctx, watchEvery) {
		if by, wished, err := look(ctx); err == nil && wished {
			r.stop(fmt.Errorf("%w by %s", ErrCancelled, by))
			return
		}
	}
}

func (r *runner) reports(ctx context.Context) {
	if r.opts.Progress == nil {
		return
	}
	for range ticks(ctx, 250*time.Millisecond) {
		r.opts.Progress(r.progress())
	}
}

func (r *runner) progress() Progress {
	p := Progress{Run: r.run.ID, Total: r.plan.Write, Written: r.written.Load(), Settled: r.settled.Load(), Rate: r.pace.limit(), Probing: r.probing.Load(), Waiting: r.waiting.Load()}
	r.mu.Lock()
	for why, n := range r.skipped {
		p.Skipped += n - r.plan.Skip[why]
	}
	r.mu.Unlock()
	return p
}
