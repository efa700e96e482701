package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/registry"
)

func (p *program) endpointRotateCommand() *cobra.Command {
	var overlap time.Duration
	cmd := &cobra.Command{Use: "rotate-secret ID", Args: oneArg("ID"),
		Short:   "Make a new secret, printed once; the old one goes on signing beside it for --overlap",
		Example: "  milena endpoint rotate-secret shop-42 --overlap 48h"}
	cmd.Flags().DurationVar(&overlap, "overlap", registry.DefaultOverlap, "how long the old secret signs beside the new one")
	return p.endpointVerb(cmd, func(e *endpointRun, args []string) error {
		return e.with(true, func(ctx context.Context, a *registry.Admin) error {
			res, err := a.RotateSecret(ctx, actor(), args[0], overlap)
			if err != nil {
				return err
			}
			if err := e.changed("has a new secret", res); err != nil || e.json {
				return err
			}
			if overlap > 0 {
				e.notef("The old one signs beside it until %s (--overlap).", clock(time.Now().Add(overlap)))
			} else {
				e.notef("The old one signs no more.")
			}
			return nil
		})
	})
}
