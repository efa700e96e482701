package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
)

func (p *program) dlqListCommand() *cobra.Command {
	f := &dlqFlags{}
	cmd := &cobra.Command{Use: "list", Args: noArgs,
		Short: "List dead letters, the newest first",
		Long: `List dead letters, the newest first: by when they came into the topic. That is moments after they died
(DIED), or when milena dlq import brought them back.`,
		Example: "  milena dlq list --endpoint shop-42 --limit 20\n  milena dlq list --reason rejected --json | jq -r .delivery_id"}
	filterFlags(cmd, &f.query)
	jsonFlag(cmd, &f.json)
	return p.dlqVerb(cmd, f, func(r *dlqRun, _ []string) error {
		table := &columns{w: r.out, terminal: r.width()}
		shown := 0
		wait := startMeter(r.err, isTTY(r.err), r.store.Reading, table.waited)
		cover, err := r.store.List(cmd.Context(), r.filter, func(e *dlq.Entry) error {
			shown++
			return wait.with(func() error {
				if f.json {
					return r.writeJSON(e.Row())
				}
				if shown == 1 {
					if err := table.add("DIED", "ENDPOINT", "REASON", "ANSWER", "ATTEMPTS", "TYPE", "DELIVERY ID"); err != nil {
						return err
					}
				}
				return table.add(letterCells(e)...)
			})
		})
		wait.end()
		if err == nil && shown == 0 {
			r.sayUnmatched()
		}
		if ferr := table.flush(); ferr != nil {
			return ferr
		}
		return r.partial(cover, err)
	})
}

func letterCells(e *dlq.Entry) []string {
	attempts := fmt.Sprint(e.Attempt)
	if e.Generation > 0 {
		attempts += fmt.Sprintf(" (life %d)", e.Generation+1)
	}
	return []string{clock(e.DiedAt), dash(e.EndpointID), safe(string(e.Reason)), answerOf(e.LastStatus, e.ErrorClass), attempts,
		dash(cutText(e.Event.Type, 40)), safe(e.ID())}
}
