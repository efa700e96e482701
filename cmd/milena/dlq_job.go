package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// jobFlags are the flags of replay, discard and resend.
type jobFlags struct {
	dlqFlags
	job       dlq.Job
	opts      dlq.Options
	all       bool
	yes       bool
	max       int64 // 0: not said
	dryRun    bool
	failEmpty bool

	said func(flag string) bool
}

const allLetters = "all dead letters; needed where there is no filter"

// scriptMost is how many a script may do without saying the number.
const scriptMost = 10_000

// add adds them; all says what --all means.
func (f *jobFlags) add(cmd *cobra.Command, all string) {
	fs := cmd.Flags()
	f.said = fs.Changed
	fs.BoolVar(&f.all, "all", false, all)
	fs.StringVar(&f.job.Why, "because", "", "why; kept with the run and in the audit log")
	fs.BoolVar(&f.dryRun, "dry-run", false, "only show what would be done")
	fs.BoolVar(&f.yes, "yes", false, "do not ask")
	fs.Int64Var(&f.max, "max", 0, "refuse if there are more; with --yes needed above 10000")
	fs.BoolVar(&f.failEmpty, "fail-empty", false, "exit code 1 if nothing matches, or nothing of it can be done")
	fs.BoolVar(&f.job.Force, "force", false, "beside a live run on the same endpoints")
	jsonFlag(cmd, &f.json)
}

// dlqJob completes a verb that plans, asks and does. check looks at the flags before
// anything is touched.
func (p *program) dlqJob(cmd *cobra.Command, f *jobFlags, check func() error) *cobra.Command {
	f.before = func(filter dlq.Filter) error {
		if filter.All() && !f.all {
			return usage("without a filter it would be all dead letters; say --all if that is meant")
		}
		if err := check(); err != nil { // what is wrong is wrong also where somebody can be asked
			return err
		}
		return f.agreeable(p.terminal())
	}
	return p.dlqVerb(cmd, &f.dlqFlags, func(r *dlqRun, _ []string) error {
		if err := r.mayRun(); err != nil && !f.dryRun {
			return err
		}
		f.job.Filter, f.job.Who = r.filter, actor().Who
		wait := r.watch()
		plan, err := r.store.Plan(cmd.Context(), f.job)
		wait.end()
		if err != nil {
			return err
		}
		if plan.Total() == 0 {
			r.sayUnmatched()
			if f.json {
				err = r.preview(plan, f.opts.CanaryWait, true)
			}
			if err == nil && f.failEmpty {
				return &exit{code: exitFailed}
			}
			return err
		}
		if err := r.preview(plan, f.opts.CanaryWait, f.json && f.dryRun); err != nil || f.dryRun {
			return err
		}
		if plan.Write == 0 {
			return f.nothing(r, plan)
		}
		p.sayExport(&f.job)
		if err := p.consent(cmd.Context(), f, plan); err != nil {
			return err
		}
		return r.execute(cmd.Context(), plan, f.opts, f.json)
	})
}

// nothing says that nothing of what matched can be done. To who waits for deliveries, or
// expects something to be done, that is a failure.
func (f *jobFlags) nothing(r *dlqRun, plan *dlq.Plan) error {
	r.notef("nothing to do")
	if f.json {
		if err := r.preview(plan, f.opts.CanaryWait, true); err != nil {
			return err
		}
	}
	switch {
	case f.opts.Wait:
		return &dlq.UndeliveredError{Of: plan.Total(), Skipped: plan.Total()}
	case f.failEmpty:
		return &exit{code: exitFailed}
	}
	return nil
}

// agreeable reports whether somebody can agree to what will be planned.
func (f *jobFlags) agreeable(terminal bool) error {
	switch {
	case !f.yes && !f.dryRun && !terminal:
		return usage("nobody can be asked here; say --yes, or --dry-run to see what would be done")
	case f.max < 1 && f.said("max"):
		return usage("--max %d: want 1 or more", f.max)
	}
	return nil
}

// mayRun names the rights that a run lacks. A write that is refused is tried for ever,
// so this is asked before the first.
func (r *dlqRun) mayRun() error {
	return r.session.within(r.cmd.Context(), func(ctx context.Context) error { return r.session.mayBe(ctx, kafka.RoleRun) })
}

// sayExport says, before anyone is asked, how a discard is undone.
func (p *program) sayExport(job *dlq.Job) {
	switch {
	case job.Kind != schemas.RunDiscard:
	case job.Export == "":
		p.notef("no export is written: they are gone for good")
	case job.Export == dlq.Stdout:
		p.notef("they are written to standard output first; milena dlq import brings them back")
	default:
		p.notef("they are written to %s first; milena dlq import %s brings them back", safe(job.Export), safe(job.Export))
	}
}

// consent asks, or looks at what a script has said.
func (p *program) consent(ctx context.Context, f *jobFlags, plan *dlq.Plan) error {
	thing := "letter"
	if plan.Job.Kind == schemas.RunResend {
		thing = "event"
	}
	switch {
	case f.max > 0 && plan.Write > f.max:
		return usage("%d %ss are more than --max %d; nothing was done", plan.Write, thing, f.max)
	case f.yes && f.max == 0 && plan.Write > scriptMost:
		return usage("%d %ss are more than %d: say the number, --max %d; nothing was done", plan.Write, thing, scriptMost, plan.Write)
	case f.yes || p.says(ctx, fmt.Sprintf("%s %s? [y/N] ", plan.Job.Kind, counted(plan.Write, thing))):
		return nil
	}
	p.notef("nothing was done")
	return &exit{code: exitFailed}
}

// says asks a person and reports whether the answer was yes. Ctrl-C is a no: the reading
// goes on behind it, but the process ends.
func (p *program) says(ctx context.Context, question string) (yes bool) {
	fmt.Fprint(p.err, question)
	line := make(chan string, 1)
	go func() {
		text, err := bufio.NewReader(p.in).ReadString('\n')
		if err != nil {
			text = "" // cut off
		}
		line <- text
	}()
	select {
	case text := <-line:
		answer := strings.ToLower(strings.TrimSpace(text))
		return answer == "y" || answer == "yes"
	case <-ctx.Done():
		fmt.Fprintln(p.err)
		return false
	}
}

// execute does what a plan says and tells how it goes.
func (r *dlqRun) execute(ctx context.Context, plan *dlq.Plan, opts dlq.Options, asJSON bool) error {
	ctx, stop := outlasts(ctx)
	defer stop()
	runs := dlq.OpenRuns(r.session.kafka, "cli")
	defer runs.Close()
	var bar *progress // from when the run is ours
	started := opts.Started
	opts.Started = func(run schemas.Run) {
		if started != nil {
			started(run)
		}
		bar = newProgress(r.err, plan.Write, isTTY(r.err))
		bar.say(run.ID)
	}
	opts.Progress = func(now dlq.Progress) { bar.update(now) }
	opts.Following = func(o dlq.Outcomes) { bar.following(o) }
	opts.Stdout = r.out
	collect(20) // it goes for hours on an operator's machine, at a rate that leaves time for it
	report, err := r.store.Execute(ctx, plan, runs, opts)
	bar.interrupted(ctx)
	bar.end()
	if report.Run.ID == "" {
		return err
	}
	if asJSON {
		if jerr := r.writeJSON(report); jerr != nil {
			return jerr
		}
	} else {
		r.writeReport(&report)
	}
	return nextStep(&report.Run, report.Outcomes, err)
}
