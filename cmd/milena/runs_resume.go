package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
)

func (p *program) runsResumeCommand() *cobra.Command {
	f := &dlqFlags{}
	var opts dlq.Options
	var rate string
	var force bool
	cmd := &cobra.Command{Use: "resume RUN", Args: oneArg("RUN"),
		Short:   "Go on with a run that was interrupted, cancelled or has failed",
		Long:    "Go on with a run that was interrupted, cancelled or has failed: the same filter and the same snapshot, minus what is settled.",
		Example: "  milena runs resume run-20261130-193000-abcdef"}
	cmd.Flags().StringVar(&rate, "rate", "", "another rate than before (500/s)")
	cmd.Flags().BoolVar(&force, "force", false, "beside a live run on the same endpoints")
	cmd.Flags().BoolVar(&opts.Wait, "wait", false, "wait for the outcomes of what is written now")
	cmd.Flags().DurationVar(&opts.WaitFor, "wait-for", 0, "with --wait: at most so long (default for ever)")
	cmd.Flags().DurationVar(&opts.CanaryWait, "canary-wait", 2*time.Minute, "how long a canary may take")
	jsonFlag(cmd, &f.json)
	return p.dlqVerb(cmd, f, func(r *dlqRun, args []string) error {
		if err := waitFlags(cmd); err != nil {
			return err
		}
		perSecond, err := rateOf("rate", rate)
		if err != nil {
			return err
		}
		if err := r.mayRun(); err != nil {
			return err
		}
		plan, err := r.resumed(args[0], perSecond, force)
		if err != nil {
			return err
		}
		r.notef("%d letters are left", plan.Write)
		return r.execute(cmd.Context(), plan, opts, f.json)
	})
}

// resumed is the plan of what is left of a run.
func (r *dlqRun) resumed(id string, rate float64, force bool) (*dlq.Plan, error) {
	runs := dlq.OpenRuns(r.session.kafka, "cli")
	defer runs.Close()
	var st dlq.Status
	err := r.session.within(r.cmd.Context(), func(ctx context.Context) (err error) {
		st, err = runs.Get(ctx, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	job, err := dlq.ResumeJob(st.Run)
	if err != nil {
		return nil, err
	}
	job.Who, job.Force = actor().Who, force
	if rate > 0 {
		job.Rate, job.Auto = rate, false
	}
	return r.store.Plan(r.cmd.Context(), job)
}
