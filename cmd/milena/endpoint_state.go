package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

func (p *program) endpointEnableCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "enable ID", Args: oneArg("ID"),
		Short:   "Send to it (again); ends an automatic disabling, an open breaker and a pause",
		Example: "  milena endpoint enable shop-42"}
	return p.stateVerb(cmd, "enabled", func(ctx context.Context, a *registry.Admin, id string) (*schemas.Endpoint, error) {
		return a.Enable(ctx, actor(), id)
	})
}

func (p *program) endpointDisableCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "disable ID", Args: oneArg("ID"),
		Short:   "Send nothing to it; what waits for it and what arrives becomes a dead letter that can be replayed",
		Example: "  milena endpoint disable shop-42 --reason 'asked for by the owner'"}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for who asks later")
	return p.stateVerb(cmd, "disabled", func(ctx context.Context, a *registry.Admin, id string) (*schemas.Endpoint, error) {
		return a.Disable(ctx, actor(), id, reason)
	})
}

func (p *program) stateVerb(cmd *cobra.Command, what string, change func(ctx context.Context, a *registry.Admin, id string) (*schemas.Endpoint, error)) *cobra.Command {
	return p.endpointVerb(cmd, func(e *endpointRun, args []string) error {
		return e.with(false, func(ctx context.Context, a *registry.Admin) error {
			ep, err := change(ctx, a, args[0])
			if err != nil {
				return err
			}
			return e.changed(what, registry.Result{Endpoint: ep})
		})
	})
}

func (p *program) endpointDeleteCommand() *cobra.Command {
	var ifVersion int64
	cmd := &cobra.Command{Use: "delete ID", Args: oneArg("ID"),
		Short:   "Delete an endpoint with its secrets; its id is never used again",
		Example: "  milena endpoint delete shop-42"}
	cmd.Flags().Int64Var(&ifVersion, "if-version", 0, "only if it is still at this version")
	return p.endpointVerb(cmd, func(e *endpointRun, args []string) error {
		return e.with(false, func(ctx context.Context, a *registry.Admin) error {
			if err := a.Delete(ctx, actor(), args[0], ifVersion); err != nil {
				return err
			}
			if e.json {
				return e.writeJSON(map[string]string{"id": args[0], "state": string(schemas.StateDeleted)})
			}
			e.printf("endpoint %s deleted\n", safe(args[0]))
			return nil
		})
	})
}
