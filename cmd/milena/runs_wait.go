package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/schemas"
)

// waitFlags are those of each command that can wait for the outcomes of a run.
func waitFlags(cmd *cobra.Command, opts *dlq.Options) {
	fs := cmd.Flags()
	fs.BoolVar(&opts.Wait, "wait", false, "wait for the outcomes of what the run wrote; exit code 0 only if all that was selected was delivered")
	fs.DurationVar(&opts.WaitFor, "wait-for", 0, "with --wait: at most so long (default for ever)")
}

// checkWait refuses a bound for a wait that was not asked for.
func checkWait(cmd *cobra.Command) error {
	if fs := cmd.Flags(); fs.Changed("wait-for") && !fs.Changed("wait") {
		return usage("--wait-for is for --wait")
	}
	return nil
}

// awaitRun waits for the end of a run, and then for that of its deliveries.
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
	err = ended(bounded, runs.Get, st, teller)
	endLine(ctx, p.err, isTTY(p.err))
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = errors.New("it has not ended within --wait-for")
	}
	if err != nil {
		return fmt.Errorf("%s is %s, %d of %d written: %w", st.ID, st.Word(), st.Counts.Written, st.Counts.Matched, err)
	}
	if opts.WaitFor > 0 {
		opts.WaitFor = max(time.Nanosecond, time.Until(until))
	}
	opts.Following = func(o dlq.Outcomes) { teller.outcomes(&o, time.Now()) }
	outcomes, err := store.Follow(ctx, &st.Run, opts)
	endLine(ctx, p.err, isTTY(p.err))
	report := dlq.Report{Run: st.Run, Outcomes: outcomes}
	if asJSON && outcomes != nil {
		if jerr := p.writeJSON(report); jerr != nil {
			return jerr
		}
	} else if outcomes != nil {
		p.writeReport(&report)
	}
	if err == nil && st.State != schemas.RunDone {
		err = errUnfinished
	}
	if st.State == schemas.RunRunning { // and nobody is at work on it
		return resumeStep(&st.Run, err)
	}
	return nextStep(&st.Run, outcomes, err)
}

var errUnfinished = errors.New("not all of the run was written")

// ended waits until nobody is at work on a run any more. A broker that is away does not end
// the wait: the run outlasts that too.
func ended(ctx context.Context, get func(context.Context, string) (dlq.Status, error), st *dlq.Status, teller *waits) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var err error
	for st.Live {
		text := fmt.Sprintf("the run is at work, %d of %d written", st.Counts.Written, st.Counts.Matched)
		if err != nil {
			text = fmt.Sprintf("the run cannot be read, trying again: %v", err)
		}
		teller.tell(text, text, nil, time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		var now dlq.Status
		switch now, err = get(ctx, st.ID); {
		case err == nil:
			*st = now
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, dlq.ErrNoRun):
			return err
		}
	}
	return nil
}
