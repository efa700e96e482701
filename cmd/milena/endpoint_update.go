package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/registry"
)

func (p *program) endpointUpdateCommand() *cobra.Command {
	var f fields
	var ifVersion int64
	cmd := &cobra.Command{Use: "update ID", Args: oneArg("ID"),
		Short:   "Change what is given, leave the rest as it is",
		Example: "  milena endpoint update shop-42 --url https://new.example/hooks\n  milena endpoint update shop-42 --rate 50 --burst 100 --if-version 7"}
	f.add(cmd.Flags())
	withoutDefaults(cmd.Flags())
	cmd.Flags().Int64Var(&ifVersion, "if-version", 0, "only if it is still at this version")
	return p.endpointVerb(cmd, func(e *endpointRun, args []string) error {
		if !f.given() {
			return usage("nothing to change: give what is to be another way, such as --url (see %s --help)", e.cmd.CommandPath())
		}
		return e.with(true, func(ctx context.Context, a *registry.Admin) error {
			res, err := a.Update(ctx, actor(), args[0], ifVersion, f.apply)
			if err != nil {
				return err
			}
			return e.changed("updated", res)
		})
	})
}
