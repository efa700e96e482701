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

func (p *program) runsResumeCommand() *cobra.Command {
	f := &dlqFlags{}
	var opts dlq.Options
	var rate, export string
	var force bool
	cmd := &cobra.Command{Use: "resume RUN", Args: oneArg("RUN"),
		Short:   "Go on with a run that was interrupted, cancelled or has failed",
		Long:    "Go on with a run that was interrupted, cancelled or has failed: the same filter and the same snapshot, minus what is settled.",
		Example: "  milena runs resume run-20261130-193000-abcdef"}
	cmd.Flags().StringVar(&rate, "rate", "", "another rate than before (500/s, or auto)")
	cmd.Flags().StringVar(&export, "export-to", "", "of a discard: another `file` for the export of what is left, or - for standard output")
	cmd.Flags().BoolVar(&force, "force", false, "beside a live run on the same endpoints")
	waitFlags(cmd, &opts)
	cmd.Flags().DurationVar(&opts.CanaryWait, "canary-wait", 2*time.Minute, "how long a canary may take")
	jsonFlag(cmd, &f.json)
	var asked dlq.Job
	f.before = func(dlq.Filter) error {
		if err := checkWait(cmd); err != nil {
			return err
		}
		if err := vacant("export-to", export); err != nil {
			return err
		}
		return setRate(&asked, rate)
	}
	return p.dlqVerb(cmd, f, func(r *dlqRun, args []string) error {
		if err := r.mayRun(); err != nil {
			return err
		}
		st, err := r.recorded(args[0])
		if err != nil {
			return err
		}
		job, err := dlq.ResumeJob(st.Run)
		if err != nil {
			return err
		}
		job.Who, job.Force = actor().Who, force
		if job.Kind == schemas.RunDiscard && export != "" {
			job.Export = export
		}
		switch fs := cmd.Flags(); {
		case export != "" && job.Kind != schemas.RunDiscard:
			return usage("--export-to is for a discard, and %s is of kind %s", safe(args[0]), job.Kind)
		case opts.Wait && job.Kind != schemas.RunReplay:
			return usage("--wait is for a replay, and %s is of kind %s", safe(args[0]), job.Kind)
		case fs.Changed("canary-wait") && !job.Canary:
			return usage("--canary-wait is for a replay with --canary, which %s is not", safe(args[0]))
		case f.json && job.Export == dlq.Stdout:
			return usage("--json and the export of %s, which goes to standard output, would be mixed", safe(args[0]))
		case rate != "":
			job.Rate, job.Auto = asked.Rate, asked.Auto
		}
		if err := dlq.MayResume(&st.Run, time.Now()); err != nil { // before all of it is planned again
			return finished(&st, err)
		}
		wait := r.watch()
		plan, err := r.store.Plan(cmd.Context(), job)
		wait.end()
		if err != nil {
			return err
		}
		opts.Started = func(schemas.Run) { r.notef("%s to go on with", counted(plan.Write, "letter")) }
		return r.execute(cmd.Context(), plan, opts, f.json)
	})
}

// finished says of a replay that cannot be resumed, for it is done, how to see what came of it.
func finished(st *dlq.Status, err error) error {
	if st.Kind == schemas.RunReplay && errors.Is(err, dlq.ErrFinished) {
		return fmt.Errorf("%w; milena runs show %s --wait tells what became of its deliveries", err, st.ID)
	}
	return err
}

// recorded is a run as its record says.
func (r *dlqRun) recorded(id string) (st dlq.Status, err error) {
	runs := dlq.OpenRuns(r.session.kafka, "cli")
	defer runs.Close()
	err = r.session.within(r.cmd.Context(), func(ctx context.Context) (err error) {
		st, err = runs.Get(ctx, id)
		return err
	})
	return st, err
}
