package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/schemas"
)

// preview shows what a plan would do; to stderr, or as JSON to stdout. A canary is waited
// for as long as canaryWait says.
func (r *dlqRun) preview(plan *dlq.Plan, canaryWait time.Duration, asJSON bool) error {
	if asJSON {
		return r.writeJSON(plan.View())
	}
	out := r.err
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	resend := plan.Job.Kind == schemas.RunResend // of events that did not die: there are no reasons
	if resend {
		fmt.Fprintln(w, "EVENTS\tENDPOINT")
	} else {
		fmt.Fprintln(w, "LETTERS\tENDPOINT\tREASONS\tSTATE")
	}
	ids := slices.SortedFunc(maps.Keys(plan.Shares), func(a, b string) int {
		return cmp.Or(cmp.Compare(plan.Shares[b].Count, plan.Shares[a].Count), cmp.Compare(a, b))
	})
	const most = 40
	for i, id := range ids {
		if i == most {
			fmt.Fprintf(w, "…\tand %d endpoints more\t\t\n", len(ids)-most)
			break
		}
		share := plan.Shares[id]
		if resend {
			fmt.Fprintf(w, "%d\t%s\n", share.Count, dash(id))
			continue
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", share.Count, endpointText(id), reasonsText(share.Reasons), stateText(plan.States[id])+limitText(plan.States[id], share.Count))
	}
	if n := plan.Unfit[dlq.SkipNowhere]; n > 0 {
		fmt.Fprintf(w, "%d\t%s\t%s\t-\n", n, noEndpoint, reasonsText(plan.Nowhere))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if plan.Job.ToEndpoint != "" {
		fmt.Fprintf(out, "all of them go to %s: %s\n", plan.Job.ToEndpoint,
			stateText(plan.States[plan.Job.ToEndpoint])+limitText(plan.States[plan.Job.ToEndpoint], plan.Write))
	}
	if plan.Count > 0 {
		what := "died"
		if resend {
			what = "written"
		}
		fmt.Fprintf(out, "%s between %s and %s, %s of payload\n", what, clock(plan.Oldest), clock(plan.Newest), sizeText(plan.Bytes))
	}
	writeSkipped(r.program, plan.Skip)
	if plan.Job.Canary {
		fmt.Fprintln(out, "of each endpoint the oldest goes first, and the rest only where that is delivered")
	}
	if last, waits := plan.WaitsForBreakers(); waits {
		fmt.Fprintln(out, "an open breaker lets one delivery through then, and the rest if that is delivered; until then they are on hold, and --wait waits (--wait-for bounds it)")
		if plan.Job.Canary && time.Until(last) > canaryWait {
			fmt.Fprintf(out, "that is longer than a canary is waited for (--canary-wait %s): where a breaker is open beyond that, only the canary will be sent\n", canaryWait)
		}
	}
	took := ""
	if t := plan.Takes(); t > 0 {
		took = ", which takes " + t.String() + " at this rate"
	}
	fmt.Fprintf(out, "%d of %d to %s%s\n", plan.Write, plan.Total(), plan.Job.Kind, took)
	return nil
}

// noEndpoint stands for the endpoint of letters whose record named none.
const noEndpoint = "(none)"

func endpointText(id string) string {
	if id == "" {
		return noEndpoint
	}
	return safe(id)
}

// limitText says how long the endpoint's own limit makes n deliveries take.
func limitText(st *dlq.EndpointState, n int64) string {
	if st == nil || st.Skip != "" || st.Limit == nil {
		return ""
	}
	text := fmt.Sprintf("; takes %g/s", st.Limit.Rate)
	if d := st.Delays(n); d > 0 {
		text += ", so these in " + d.String() + " or more"
	}
	return text
}

func reasonsText(reasons map[schemas.Reason]int64) string {
	var parts []string
	for _, reason := range slices.SortedFunc(maps.Keys(reasons), func(a, b schemas.Reason) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), cmp.Compare(a, b))
	}) {
		parts = append(parts, fmt.Sprintf("%s %d", safe(string(reason)), reasons[reason]))
	}
	if parts == nil {
		return "-"
	}
	return strings.Join(parts, ", ")
}

func stateText(st *dlq.EndpointState) string {
	if st == nil {
		return "-"
	}
	if st.Skip != "" {
		text := strings.TrimPrefix(st.Skip, "endpoint_")
		if st.Why != "" {
			text += ": " + safe(st.Why)
		}
		return text
	}
	switch st.Breaker {
	case "closed":
		return "ok"
	case "unknown":
		return "enabled"
	case "paused":
		return "paused until " + clock(st.Until)
	case "open":
		if !st.Until.After(time.Now()) {
			return "breaker open, next try is due"
		}
		return "breaker open, next try " + clock(st.Until)
	}
	return st.Breaker + " since " + clock(st.Failing)
}

func writeSkipped(p *program, skipped map[string]int64) {
	for _, why := range sortedKeys(skipped) {
		p.notef("skipped %d: %s", skipped[why], skipText(why))
	}
}

func skipText(why string) string {
	text := map[string]string{
		dlq.SkipOmitted:  "their payload was left out, so they cannot be sent",
		dlq.SkipNull:     "their value was null, so there is nothing to send",
		dlq.SkipNowhere:  "they belong to no endpoint",
		dlq.SkipDisabled: "their endpoint is disabled (--include-disabled)",
		dlq.SkipDeleted:  "their endpoint is deleted (--include-disabled)",
		dlq.SkipUnknown:  "their endpoint is unknown (--include-disabled)",
		dlq.SkipCanary:   "the first one of their endpoint was not delivered",
		dlq.SkipLate:     "what became of the first one of their endpoint was not known in time (--canary-wait)",
		dlq.SkipTooLarge: "the broker refuses them as too large",
		dlq.SkipSettled:  "someone else settled them meanwhile",
		dlq.SkipGone:     "the topic has them no longer: their retention ended, or someone settled them",
		dlq.SkipPayload:  "where their payload is, only a newer version of milena knows",
		dlq.SkipLives:    "they have died too often to be told apart",
		dlq.SkipThere:    "they are there already, or a later life of them is",
	}[why]
	if text == "" {
		return safe(why)
	}
	return text
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
