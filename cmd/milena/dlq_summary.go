package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
)

func (p *program) dlqSummaryCommand() *cobra.Command {
	f := &dlqFlags{}
	cmd := &cobra.Command{Use: "summary", Args: noArgs,
		Short: "How many are dead, of which endpoints, and why",
		Long: `How many are dead, of which endpoints, and why: one line for each reason, status, error class and
endpoint, the largest first. Ctrl-C shows what was read until then, and says so.`,
		Example: "  milena dlq summary\n  milena dlq summary --since 2h --status 5xx\n  milena dlq summary --json | jq 'select(.expiring > 0)'"}
	filterFlags(cmd, &f.query)
	jsonFlag(cmd, &f.json)
	return p.dlqVerb(cmd, f, func(r *dlqRun, _ []string) error {
		wait := r.watch()
		sum, err := r.store.Summary(cmd.Context(), r.filter)
		wait.end()
		if err != nil && !errors.Is(err, dlq.ErrPartial) {
			return err
		}
		if f.json {
			for _, g := range sum.Groups {
				line := struct {
					*dlq.Group
					Complete bool `json:"complete"` // what was read; a group may have more
				}{g, sum.Coverage.Complete}
				if err := r.writeJSON(line); err != nil {
					return err
				}
			}
		} else if err := r.writeSummary(sum); err != nil {
			return err
		}
		if sum.NoExpiry != nil && sum.Count > 0 {
			r.notef("milena: how many expire is not known: %v", sum.NoExpiry)
		}
		return r.partial(sum.Coverage, err)
	})
}

func (r *dlqRun) writeSummary(sum *dlq.Summary) error {
	if sum.Count == 0 {
		if sum.Coverage.Complete {
			r.sayUnmatched()
		}
		return nil
	}
	rows := [][]string{{"LETTERS", "ENDPOINT", "REASON", "ANSWER", "FIRST DIED", "LAST DIED", "REPLAYED", "EXPIRING", "LAST ERROR"}}
	for _, g := range sum.Groups {
		rows = append(rows, []string{fmt.Sprint(g.Count), dash(g.EndpointID), safe(string(g.Reason)), answerOf(g.Status, g.ErrorClass),
			clock(g.First), clock(g.Last), replayedText(g), number(g.Expiring), dash(cutText(g.Sample, 80))})
	}
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	for _, row := range withoutEmpty(rows, 6) {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	endpoints := map[string]bool{}
	for _, g := range sum.Groups {
		endpoints[g.EndpointID] = true
	}
	r.printf("%s of %s, %s of payload\n", counted(sum.Count, "dead letter"), counted(int64(len(endpoints)), "endpoint"), sizeText(sum.Bytes))
	return nil
}

// withoutEmpty leaves out those columns, from the one given on, that say nothing in any row.
func withoutEmpty(rows [][]string, from int) [][]string {
	for col := len(rows[0]) - 1; col >= from; col-- {
		if !slices.ContainsFunc(rows[1:], func(row []string) bool { return row[col] != "-" }) {
			for i := range rows {
				rows[i] = slices.Delete(rows[i], col, col+1)
			}
		}
	}
	return rows
}

// replayedText tells those that a replay did not help.
func replayedText(g *dlq.Group) string {
	if g.Replayed == 0 {
		return "-"
	}
	return fmt.Sprintf("%d, %d died the same way", g.Replayed, g.SameWay)
}
