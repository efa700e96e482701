package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
)

func (p *program) runsListCommand() *cobra.Command {
	f := &dlqFlags{}
	cmd := &cobra.Command{Use: "list", Args: noArgs, Short: "List runs, the newest first", Example: "  milena runs list\n  milena runs list --json | jq 'select(.live)'"}
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
				fmt.Fprintln(w, "RUN\tKIND\tSTATE\tSTARTED\tDONE\tOF\tWHO\tWHY")
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", safe(st.ID), st.Kind, st.Word(), clock(st.Started), st.Counts.Written, st.Counts.Matched, dash(st.Who), dash(cutText(st.Why, 60)))
		}
		if len(list) == 0 {
			p.notef("no runs")
		}
		return w.Flush()
	})
}
