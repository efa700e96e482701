package main

import (
	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
)

func (p *program) runsCommand() *cobra.Command {
	return group("runs", "Replays, discards, imports and resends: list, show, cancel, resume", "  milena runs list",
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
