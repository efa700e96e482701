package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/schemas"
)

func (p *program) runsShowCommand() *cobra.Command {
	f := &dlqFlags{}
	var opts dlq.Options
	cmd := &cobra.Command{Use: "show RUN", Args: oneArg("RUN"), Short: "Show one run, with --wait also what became of each delivery of a replay or a resend",
		Long: `Show one run. --wait tells what became of the deliveries that a replay or a resend wrote, as their own --wait
does, whoever began it and also when it is finished: it waits for the end of the run and of each delivery.
Exit code 0 only if all that it selected was delivered; Ctrl-C ends the waiting and nothing else.`,
		Example:    "  milena runs show run-20261130-193000-abcdef\n  milena runs show run-20261130-193000-abcdef --wait --wait-for 10m",
		SuggestFor: []string{"wait", "follow"}}
	waitFlags(cmd, &opts)
	jsonFlag(cmd, &f.json)
	return p.runsVerb(cmd, f, func(s *session, runs *dlq.Runs, args []string) error {
		if err := checkWait(cmd); err != nil {
			return err
		}
		var st dlq.Status
		err := s.within(cmd.Context(), func(ctx context.Context) (err error) {
			st, err = runs.Get(ctx, args[0])
			return err
		})
		switch {
		case err != nil:
			return err
		case opts.Wait && !dlq.WritesDeliveries(st.Kind):
			return usage("--wait is for a replay or a resend, and %s is of kind %s", safe(args[0]), st.Kind)
		case opts.Wait:
			return p.awaitRun(cmd.Context(), s, runs, &st, opts, f.json)
		case f.json:
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
	line("rate", speedText(st.Rate, st.Auto))
	line("endpoint rate", speedText(st.EndpointRate, false))
	if st.Canary {
		line("canary", "first one for each endpoint")
	}
	if st.IncludeDisabled {
		line("disabled", "included")
	}
	line("export", st.Export)
	line("matched", fmt.Sprint(st.Counts.Matched))
	line("written", writtenText(st, time.Now()))
	for _, why := range sortedKeys(st.Counts.Skipped) {
		line("skipped", fmt.Sprintf("%d: %s", st.Counts.Skipped[why], skipText(why)))
	}
	line("error", st.Error)
	line("started", clock(st.Started))
	if st.ResumedBy != "" {
		line("resumed", clock(st.ResumedAt)+" by "+st.ResumedBy)
	}
	line("updated", clock(st.Updated))
	line("finished", timeText(st.Finished))
	if st.Control != nil && st.State == schemas.RunRunning {
		text := "asked for by " + st.Control.Who + " on " + clock(st.Control.At)
		if st.Control.Why != "" {
			text += ": " + st.Control.Why
		}
		line("cancel", text)
	}
}

// writtenText says of a run that has not ended how old what is known of it is.
func writtenText(st *dlq.Status, now time.Time) string {
	text := fmt.Sprint(st.Counts.Written)
	switch {
	case st.State != schemas.RunRunning:
	case st.Live:
		text += fmt.Sprintf(", %.0f s ago", now.Sub(st.Updated).Seconds())
	default:
		text += fmt.Sprintf(" or more: its runner has not been heard of since; milena runs resume %s counts exactly", st.ID)
	}
	return text
}

func speedText(rate float64, auto bool) string {
	switch {
	case auto:
		return "auto"
	case rate > 0:
		return fmt.Sprintf("%g/s", rate)
	}
	return ""
}
