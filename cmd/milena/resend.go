package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/router"
)

// resendFlags are the flags of milena resend.
type resendFlags struct {
	jobFlags
	past         dlq.Past
	fromSources  bool
	since, until string
	rate         string
}

func (p *program) resendCommand() *cobra.Command {
	f := &resendFlags{}
	cmd := &cobra.Command{Use: "resend", Args: noArgs,
		Short: "Send events again that are still in the deliveries topic, also those that were delivered",
		Long: `Send events again that are still in the deliveries topic, also those that were delivered: one event, one
delivery, or all of an endpoint in a window. Each becomes a new delivery with the same message id.
--from-sources looks into sources.topics too: for what deliveries has no longer, or never had because its
endpoint came later; who gets it is decided by today's subscriptions. --missing sends only what was never
attempted and is not on its way, after a report of what became of every delivery of the window: a
reconciliation. Of what was replayed or sent again the newest counts. The columns, which add up to DELIVERIES:
  DELIVERED  once at least; there is nothing to do
  DEAD       milena dlq replay brings it back
  DISCARDED  dead, and somebody wanted it so; milena resend --delivery ID if it is wanted after all
  ELSEWHERE  dead, and replayed to another endpoint; its own gets it by milena resend --delivery ID
  GONE       dead, and retention has taken its letter; milena resend --delivery ID (milena attempts has the ids)
  RETRYING   it failed and has a next try; milena attempts shows when
  HELD       not attempted and on its way: not read yet, scheduled, just sent again, or its endpoint has work
             on hold; milena endpoint explain ID says until when
  MISSING    never attempted, and nothing would lead to it: this is sent
  UNKNOWN    older than the delivery log (7 days, by default), so it may have been delivered: it is not sent;
             milena resend --endpoint ID --all sends all of a window
--wait tells what became of each delivery that was written, and ends with 0 only if all were delivered.`,
		Example: `  milena resend --event evt_1042 --wait
  milena resend --endpoint shop-42 --since 2026-11-30T08:00:00Z --until 2026-11-30T09:00:00Z --all
  milena resend --endpoint shop-42 --since 24h --missing --dry-run
  milena resend --endpoint new-shop --since 7d --missing --from-sources --rate 50/s`}
	fs := cmd.Flags()
	fs.StringVar(&f.past.Event, "event", "", "this event, by the producer's id or its message id")
	fs.StringVar(&f.past.Delivery, "delivery", "", "this delivery, by its id")
	fs.StringSliceVar(&f.past.Endpoints, "endpoint", nil, "of this endpoint (repeatable)")
	fs.StringVar(&f.since, "since", "", "written at this time or later: how long ago (2h, 3d) or a time, with its zone or local")
	fs.StringVar(&f.until, "until", "", "written before: how long ago or a time (with --missing, default 15m)")
	fs.BoolVar(&f.past.Missing, "missing", false, "only what was never attempted and is not on its way")
	fs.BoolVar(&f.fromSources, "from-sources", false, "also from sources.topics, what is not in deliveries")
	fs.StringVar(&f.rate, "rate", "", "so many a second (500/s; default unlimited)")
	waitFlags(cmd, &f.opts)
	f.add(cmd, "everything of the window, also what was delivered")
	f.before = func(dlq.Filter) error {
		if err := checkWait(cmd); err != nil {
			return err
		}
		return f.check(p.terminal())
	}
	return p.dlqVerb(cmd, &f.dlqFlags, func(r *dlqRun, _ []string) error { return r.resend(f) })
}

// check looks at the flags before anything is touched.
func (f *resendFlags) check(terminal bool) (err error) {
	window := f.past.Event == "" && f.past.Delivery == ""
	switch {
	case window && len(f.past.Endpoints) == 0 && !f.past.Missing:
		return usage("say which: --event, --delivery, --endpoint with --all, or --missing")
	case window && f.past.Missing == f.all:
		return usage("say one of --missing (what was never attempted) and --all (also what was delivered)")
	case !window && f.all:
		return usage("--all is for a window of --endpoint; --event and --delivery say which already")
	case window && f.since == "":
		return usage("say --since: what of the window is to be looked at")
	}
	until := f.until
	if f.past.Missing && until == "" {
		until = "15m" // what came just now may only be waiting for its turn
	}
	filter, err := dlq.Query{Endpoints: f.past.Endpoints, Since: f.since, Until: until}.Resolve(time.Now())
	if wrong := (*dlq.QueryError)(nil); errors.As(err, &wrong) && wrong.Flag == "until" && f.until == "" {
		return usage("--since %s: --missing looks at what is older than %s, unless --until says otherwise", f.since, until)
	}
	if err != nil {
		return usage("%w", err)
	}
	f.past.Endpoints, f.past.Since, f.past.Until = filter.Endpoints, filter.Since, filter.Until
	if f.job.Rate, err = rateOf("rate", f.rate); err != nil {
		return err
	}
	return f.agreeable(terminal)
}

func (r *dlqRun) resend(f *resendFlags) error {
	if err := r.mayRun(); err != nil && !f.dryRun {
		return err
	}
	f.job.Who = actor().Who
	plan, gaps, err := r.planResend(f)
	if err != nil {
		return err
	}
	if err := r.writeGaps(gaps, f.json); err != nil {
		return err
	}
	if plan.Write == 0 {
		return f.nothingMatched(r, plan, gaps)
	}
	if err := r.preview(plan, 0, f.json && f.dryRun); err != nil || f.dryRun {
		return err
	}
	if err := r.consent(r.cmd.Context(), &f.jobFlags, plan); err != nil {
		return err
	}
	return r.execute(r.cmd.Context(), plan, f.opts, f.json)
}

// nothingMatched says so. An id that was given is to be there; gaps has it if it is,
// and is not missing.
func (f *resendFlags) nothingMatched(r *dlqRun, plan *dlq.Plan, gaps map[string]*dlq.Gap) error {
	if f.json {
		if err := r.writeJSON(plan.View()); err != nil {
			return err
		}
	}
	what, id := "event", f.past.Event
	if f.past.Delivery != "" {
		what, id = "delivery", f.past.Delivery
	}
	if id != "" && len(gaps) == 0 {
		where := r.session.kafka.Names.Deliveries()
		if !f.fromSources {
			where += ", which keeps what is younger than its retention; --from-sources looks further back"
		}
		return fmt.Errorf("no such %s: %s is not in %s", what, safe(id), where)
	}
	switch {
	case len(gaps) == 0:
		r.notef("nothing matched")
		r.sayUnknown(r.cmd.Context(), r.session, f.past.Endpoints...)
	case slices.ContainsFunc(slices.Collect(maps.Values(gaps)), func(g *dlq.Gap) bool { return g.Unknown > 0 }):
		r.notef("nothing is known to be missing")
	default:
		r.notef("nothing is missing")
	}
	if f.failEmpty {
		return &exit{code: exitFailed}
	}
	return nil
}

func (r *dlqRun) planResend(f *resendFlags) (plan *dlq.Plan, gaps map[string]*dlq.Gap, err error) {
	defer r.watch().end()
	if !f.fromSources {
		return r.store.PlanResend(r.cmd.Context(), f.job, f.past)
	}
	sources := r.session.Sources
	if len(sources.Topics) == 0 {
		return nil, nil, usage("--from-sources: there are none; give sources.topics as the router has it")
	}
	mapping := router.Mapping{Types: sources.Types, Tenants: sources.Tenants}
	err = r.session.withEndpoints(r.cmd.Context(), func(endpoints *registry.Follower) error {
		f.past.Sources = &dlq.Sources{Topics: sources.Topics, Read: mapping.Read,
			Match: func(tenant, eventType string) (ids []string) {
				for _, ep := range endpoints.Match(tenant, eventType) {
					ids = append(ids, ep.ID)
				}
				return ids
			}}
		plan, gaps, err = r.store.PlanResend(r.cmd.Context(), f.job, f.past)
		return err
	})
	return plan, gaps, err
}

// writeGaps is the reconciliation: data, so to stdout.
func (r *dlqRun) writeGaps(gaps map[string]*dlq.Gap, asJSON bool) error {
	if len(gaps) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	if !asJSON {
		fmt.Fprintln(w, "ENDPOINT\tDELIVERIES\tDELIVERED\tDEAD\tDISCARDED\tELSEWHERE\tGONE\tRETRYING\tHELD\tMISSING\tUNKNOWN")
	}
	for _, id := range sortedKeys(gaps) {
		g := gaps[id]
		if asJSON {
			line := struct {
				EndpointID string `json:"endpoint_id"`
				*dlq.Gap
			}{id, g}
			if err := r.writeJSON(line); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", dash(id), g.Deliveries, g.Delivered,
			g.Dead, g.Discarded, g.Elsewhere, g.Gone, g.Retrying, g.Held, g.Missing, g.Unknown)
	}
	return w.Flush()
}
