package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/schemas"
)

// awaitRun waits for the end of a replay, and then for that of its deliveries.
func (p *program) awaitRun(ctx context.Context, s *session, runs *dlq.Runs, st *dlq.Status, opts dlq.Options, asJSON bool) error {
	store, err := dlq.Open(s.kafka)
	if err != nil {
		return err
	}
	defer store.Close()
	teller := &waits{say: func(text string) { p.notef("milena: %s", text) }}
	bounded, until := ctx, time.Now().Add(opts.WaitFor) // for both ends together
	if opts.WaitFor > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	err = p.ended(bounded, runs, st, teller)
	if bounded.Err() != nil && ctx.Err() == nil {
		err = errors.New("it has not ended within --wait-for")
	}
	if err != nil {
		return fmt.Errorf("run %s is %s, %d of %d written: %w", st.ID, st.Word(), st.Counts.Written, st.Counts.Matched, err)
	}
	if opts.WaitFor > 0 {
		opts.WaitFor = max(time.Nanosecond, time.Until(until))
	}
	opts.Following = func(o dlq.Outcomes) { teller.outcomes(&o, time.Now()) }
	outcomes, err := store.Follow(ctx, &st.Run, opts)
	report := dlq.Report{Run: st.Run, Outcomes: outcomes}
	if asJSON && outcomes != nil {
		if jerr := p.writeJSON(report); jerr != nil {
			return jerr
		}
	} else if outcomes != nil {
		p.writeReport(&report)
	}
	switch {
	case st.State == schemas.RunRunning: // and nobody is at work on it
		return fmt.Errorf("%w; milena runs resume %s goes on with it", errors.Join(err, errUnfinished), st.ID)
	case err == nil && st.State != schemas.RunDone:
		err = errUnfinished
	}
	return wayOn(&st.Run, outcomes, err)
}

var errUnfinished = errors.New("not all of the run was written")

// ended waits until nobody is at work on a run any more.
func (p *program) ended(ctx context.Context, runs *dlq.Runs, st *dlq.Status, teller *waits) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for st.Live {
		text := fmt.Sprintf("the run is at work, %d of %d written", st.Counts.Written, st.Counts.Matched)
		teller.tell(text, text, nil, time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err := runs.Get(ctx, st.ID)
		if err != nil {
			return err
		}
		*st = now
	}
	return nil
}
