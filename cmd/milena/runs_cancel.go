package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/schemas"
)

func (p *program) runsCancelCommand() *cobra.Command {
	f := &dlqFlags{}
	var why string
	cmd := &cobra.Command{Use: "cancel RUN", Args: oneArg("RUN"), Short: "Stop a run that is at work, from any shell; runs resume goes on with a replay or a discard",
		Example: "  milena runs cancel run-20261130-193000-abcdef --because 'wrong filter'"}
	cmd.Flags().StringVar(&why, "because", "", "why; kept with the run and in the audit log")
	return p.runsVerb(cmd, f, func(s *session, runs *dlq.Runs, args []string) error {
		err := s.within(cmd.Context(), func(ctx context.Context) error { return runs.Cancel(ctx, args[0], actor().Who, why) })
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
		defer cancel()
		st, err := runs.Ended(ctx, args[0])
		switch {
		case err == nil:
			p.notef("%s is %s: %d of %d written", st.ID, st.State, st.Counts.Written, st.Counts.Matched)
			return nil
		case errors.Is(ctx.Err(), context.DeadlineExceeded) && st.ID != "":
			return fmt.Errorf("its runner, %s, was asked to stop, and has not said that it did within %s (--timeout); if that process is gone, milena runs cancel %s after %s ends the run",
				safe(st.Runner), f.timeout, safe(st.ID), clock(st.Updated.Add(schemas.RunStale)))
		}
		return s.explain(ctx, err)
	})
}
