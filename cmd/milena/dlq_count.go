package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
)

func (p *program) dlqCountCommand() *cobra.Command {
	f := &dlqFlags{}
	cmd := &cobra.Command{Use: "count", Args: noArgs,
		Short:   "Count dead letters",
		Example: "  milena dlq count --endpoint shop-42 --since 24h"}
	filterFlags(cmd, &f.query)
	jsonFlag(cmd, &f.json)
	return p.dlqVerb(cmd, f, func(r *dlqRun, _ []string) error {
		wait := r.watch()
		n, cover, err := r.store.Count(cmd.Context(), r.filter)
		wait.end()
		if err != nil && !errors.Is(err, dlq.ErrPartial) {
			return err
		}
		if f.json {
			if err := r.writeJSON(map[string]any{"count": n, "complete": cover.Complete}); err != nil {
				return err
			}
		} else {
			r.printf("%d\n", n)
		}
		if n == 0 && cover.Complete {
			r.sayUnknown(cmd.Context(), r.session, r.filter.Endpoints...)
		}
		return r.partial(cover, err)
	})
}
