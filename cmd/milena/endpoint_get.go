package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

func (p *program) endpointGetCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "get ID", Args: oneArg("ID"), Short: "Show one endpoint",
		Long:    "Show one endpoint. " + nowHelp,
		Example: "  milena endpoint get shop-42"}
	return p.endpointVerb(cmd, func(e *endpointRun, args []string) error {
		var ep *schemas.Endpoint
		err := e.with(false, func(ctx context.Context, a *registry.Admin) (err error) {
			ep, err = a.Get(ctx, args[0])
			return err
		})
		if err != nil {
			return err
		}
		k, err := e.trouble(ep.ID)
		if err != nil {
			return err
		}
		k.say(e.program)
		if e.json {
			return e.writeJSON(k.view(ep))
		}
		e.show(ep, k.text(ep))
		return nil
	})
}
