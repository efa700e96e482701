package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/schemas"
)

func (p *program) runsCommand() *cobra.Command {
	return group("runs", "Replays, discards and imports: list, show, cancel, resume", "  milena runs list",
		p.runsListCommand(), p.runsShowCommand(), p.runsCancelCommand(), p.runsResumeCommand())
}

// runsVerb completes a command about runs.
func (p *program) runsVerb(cmd *cobra.Command, f *dlqFlags, run func(s *session, runs *dlq.Runs, args []string) error) *cobra.Command {
	timeoutFlag(cmd, &f.timeout)
	settings(cmd)
	return p.verb(cmd, func(cmd *cobra.Command, args []string) error {
		s, err := p.connect(cmd, f.timeout)
		if err != nil {
			return err
		}
		runs := dlq.OpenRuns(s.kafka, "cli")
		defer runs.Close()
		return run(s, runs, args)
	})
}

func (p *program) runsListCommand() *cobra.Command {
	f := &dlqFlags{}
	cmd := &cobra.Command{Use: "list", Args: cobra.NoArgs, Short: "List runs, the newest first", Example: "  milena runs list\n  milena runs list --json | jq 'select(.live)'"}
	jsonFlag(cmd, &f.json)
	return p.runsVerb(cmd, f, func(s *session, runs *dlq.Runs, _ []string) error {
		var list []dlq.Status
		err := s.within(cmd.Context(), func(ctx context.Context) (err error) {
			list, err = runs.List(ctx)
			return err
		})
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
		for i := range list {
			st := &list[i]
			if f.json {
				if err := p.writeJSON(st); err != nil {
					return err
				}
				continue
			}
			if i == 0 {
				fmt.Fprintln(w, "RUN\tKIND\tSTATE\tSTARTED\tWRITTEN\tOF\tWHO\tWHY")
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", safe(st.ID), st.Kind, st.Word(), clock(st.Started), st.Counts.Written, st.Counts.Matched, dash(st.Who), dash(cutText(st.Why, 60)))
		}
		if len(list) == 0 {
			p.notef("no runs")
		}
		return w.Flush()
	})
}

func (p *program) runsShowCommand() *cobra.Command {
	f := &dlqFlags{}
	cmd := &cobra.Command{Use: "show RUN", Args: cobra.ExactArgs(1), Short: "Show one run", Example: "  milena runs show run-20261130-193000-abcdef"}
	jsonFlag(cmd, &f.json)
	return p.runsVerb(cmd, f, func(s *session, runs *dlq.Runs, args []string) error {
		var st dlq.Status
		err := s.within(cmd.Context(), func(ctx context.Context) (err error) {
			st, err = runs.Get(ctx, args[0])
			return err
		})
		if err != nil {
			return err
		}
		if f.json {
			return p.writeJSON(st)
		}
		p.showRun(&st)
		return nil
	})
}

func (p *program) showRun(st *dlq.Status) {
	line := func(name, value string) {
		if value != "" {
			p.printf("  %-14s %s\n", name, safe(value))
		}
	}
	p.printf("%s\n", safe(st.ID))
	line("kind", string(st.Kind))
	line("state", st.Word())
	line("who", st.Who)
	line("why", st.Why)
	line("runner", st.Runner)
	line("filter", string(st.Filter))
	line("endpoints", strings.Join(st.Endpoints, ", "))
	line("to endpoint", st.ToEndpoint)
	if st.Rate > 0 {
		line("rate", fmt.Sprintf("%g/s", st.Rate))
	}
	line("export", st.Export)
	line("matched", fmt.Sprint(st.Counts.Matched))
	line("written", fmt.Sprint(st.Counts.Written))
	for _, why := range slices.Sorted(maps.Keys(st.Counts.Skipped)) {
		line("skipped", fmt.Sprintf("%d: %s", st.Counts.Skipped[why], skipText(why)))
	}
	line("error", st.Error)
	line("started", clock(st.Started))
	line("updated", clock(st.Updated))
	line("finished", timeText(st.Finished))
	if st.Control != nil && st.State == schemas.RunRunning {
		line("cancel", "asked for by "+st.Control.Who+" on "+clock(st.Control.At))
	}
}

func (p *program) runsCancelCommand() *cobra.Command {
	f := &dlqFlags{}
	var why string
	cmd := &cobra.Command{Use: "cancel RUN", Args: cobra.ExactArgs(1), Short: "Stop a run that is at work, from any shell; runs resume goes on with it",
		Example: "  milena runs cancel run-20261130-193000-abcdef --because 'wrong filter'"}
	cmd.Flags().StringVar(&why, "because", "", "why; kept in the audit log")
	return p.runsVerb(cmd, f, func(s *session, runs *dlq.Runs, args []string) error {
		return s.within(cmd.Context(), func(ctx context.Context) error {
			if err := runs.Cancel(ctx, args[0], actor().Who, why); err != nil {
				return err
			}
			st, err := runs.Ended(ctx, args[0])
			if err != nil {
				return fmt.Errorf("its runner was asked to stop, and has not said that it did: %w", err)
			}
			p.notef("run %s is %s: %d of %d written", st.ID, st.State, st.Counts.Written, st.Counts.Matched)
			return nil
		})
	})
}

func (p *program) runsResumeCommand() *cobra.Command {
	f := &dlqFlags{}
	var opts dlq.Options
	var rate string
	var force bool
	cmd := &cobra.Command{Use: "resume RUN", Args: cobra.ExactArgs(1),
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
		perSecond, err := rateOf("rate", rate)
		if err != nil {
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
