package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/health"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

func (p *program) endpointListCommand() *cobra.Command {
	var tenant string
	var failing bool
	cmd := &cobra.Command{Use: "list", Args: noArgs, Short: "List endpoints",
		Long:    "List endpoints. " + nowHelp + "\n\nA record that cannot be read, because something else than Milena wrote it, is named on stderr with\nwhat to do; the others are listed, and the exit code is 1.",
		Example: "  milena endpoint list --tenant shop\n  milena endpoint list --failing\n  milena endpoint list --json | jq -r .url"}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of this tenant")
	cmd.Flags().BoolVar(&failing, "failing", false, "only those in trouble, and what it is: failing, paused, on hold, switched off")
	return p.endpointVerb(cmd, func(e *endpointRun, _ []string) error {
		var list []*schemas.Endpoint
		var bad []error
		err := e.with(false, func(ctx context.Context, a *registry.Admin) (err error) {
			list, bad, err = a.List(ctx)
			return err
		})
		if err != nil {
			return err
		}
		if failing {
			err = e.listFailing(list, tenant)
		} else {
			err = e.listAll(list, tenant, len(bad) > 0)
		}
		if err != nil || len(bad) == 0 {
			return err
		}
		for _, err := range bad {
			e.notef("milena: %v", err)
		}
		return fmt.Errorf("this is only a part: %s left out", counted(int64(len(bad)), "unreadable record"))
	})
}

// listAll shows the endpoints, of one tenant if --tenant is given. partly: there may
// be others.
func (e *endpointRun) listAll(list []*schemas.Endpoint, tenant string, partly bool) error {
	k, err := e.trouble()
	if err != nil {
		return err
	}
	k.say(e.program)
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	shown := 0
	for _, ep := range list {
		if e.cmd.Flags().Changed("tenant") && ep.Tenant != tenant {
			continue
		}
		if e.json {
			if err := e.writeJSON(k.view(ep)); err != nil {
				return err
			}
			continue
		}
		if shown == 0 {
			fmt.Fprintln(w, "ID\tTENANT\tSTATE\tEVENT TYPES\tURL")
		}
		shown++
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", safe(ep.ID), dash(ep.Tenant), dash(k.text(ep)), safe(strings.Join(ep.EventTypes, ",")), safe(ep.URL))
	}
	switch {
	case e.json || shown > 0 || partly:
	case len(list) > 0:
		e.notef("no endpoint%s; others have %s", ofTenant(tenant), counted(int64(len(list)), "endpoint"))
	default:
		e.notef("no endpoints; register one with milena endpoint create --url URL")
	}
	return w.Flush()
}

// listFailing shows the endpoints in trouble, each with its reasons.
func (e *endpointRun) listFailing(list []*schemas.Endpoint, tenant string) error {
	k, err := e.trouble()
	if err != nil {
		return err
	}
	if k.unread != nil {
		return k.unread
	}
	shown := 0
	for _, ep := range list {
		h := k.Of(ep.ID)
		if h == nil || ep.State == schemas.StateDeleted || (e.cmd.Flags().Changed("tenant") && ep.Tenant != tenant) {
			continue
		}
		shown++
		c := health.Case{Endpoint: ep, Health: h, Owned: true, Now: k.at, Clock: e.clock()}
		why := c.Explain()
		if e.json {
			line := struct {
				Endpoint endpointView    `json:"endpoint"`
				Health   *schemas.Health `json:"health"`
				Why      []string        `json:"why"`
			}{k.view(ep), h, why}
			if err := e.writeJSON(line); err != nil {
				return err
			}
			continue
		}
		e.printf("%s  %s\n", safe(ep.ID), safe(ep.URL))
		for _, text := range why {
			e.printf("  %s\n", safe(text))
		}
	}
	if shown == 0 && !e.json {
		e.notef("no endpoint is in trouble")
	}
	return nil
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return safe(s)
}
