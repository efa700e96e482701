package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
)

func (p *program) runsCancelCommand() *cobra.Command {
	f := &dlqFlags{}
	var why string
	cmd := &cobra.Command{Use: "cancel RUN", Args: oneArg("RUN"), Short: "Stop a run that is at work, from any shell; runs resume goes on with a replay or a discard",
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
