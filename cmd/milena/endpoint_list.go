package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

func (p *program) endpointListCommand() *cobra.Command {
	var tenant string
	cmd := &cobra.Command{Use: "list", Args: cobra.NoArgs, Short: "List endpoints",
		Example: "  milena endpoint list --tenant shop\n  milena endpoint list --json | jq -r .url"}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of this tenant")
	return p.endpointVerb(cmd, func(e *endpointRun, _ []string) error {
		var list []*schemas.Endpoint
		err := e.with(false, func(ctx context.Context, a *registry.Admin) (err error) {
			list, err = a.List(ctx)
			return err
		})
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
		shown := 0
		for _, ep := range list {
			if e.cmd.Flags().Changed("tenant") && ep.Tenant != tenant {
				continue
			}
			if e.json {
				if err := e.writeJSON(view(ep)); err != nil {
					return err
				}
				continue
			}
			if shown == 0 {
				fmt.Fprintln(w, "ID\tTENANT\tSTATE\tEVENT TYPES\tURL")
			}
			shown++
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", ep.ID, dash(ep.Tenant), ep.State, safe(strings.Join(ep.EventTypes, ",")), safe(ep.URL))
		}
		if !e.json && shown == 0 {
			e.notef("no endpoints; register one with milena endpoint create --url URL")
		}
		return w.Flush()
	})
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return safe(s)
}
