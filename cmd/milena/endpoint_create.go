package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

func (p *program) endpointCreateCommand() *cobra.Command {
	var f fields
	var id, tenant, secret string
	cmd := &cobra.Command{Use: "create --url URL", Args: noArgs,
		Short: "Register an endpoint; its secret is printed once",
		Example: `  milena endpoint create --url https://example.com/hook
  milena endpoint create --id shop-42 --tenant shop --url https://shop.example/hooks --event-types 'order.*,payment.captured' --retry proofledger`}
	cmd.Flags().StringVar(&id, "id", "", "its id, [A-Za-z0-9_-]{1,64}, never used again (default: one is made)")
	cmd.Flags().StringVar(&tenant, "tenant", "", "whose it is")
	f.add(cmd.Flags())
	cmd.Flags().StringVar(&secret, "secret-file", "", "`file` with a secret that the receiver has already")
	return p.endpointVerb(cmd, func(e *endpointRun, _ []string) error {
		if f.url == "" {
			return usage("--url is missing: where shall it POST to?")
		}
		ep := schemas.Endpoint{ID: id, Tenant: tenant, EventTypes: f.eventTypes}
		if err := f.apply(&ep); err != nil {
			return err
		}
		var own []string
		if secret != "" {
			text, err := secretFile("--secret-file", secret)
			if err != nil {
				return err
			}
			own = append(own, text)
		}
		return e.with(true, func(ctx context.Context, a *registry.Admin) error {
			res, err := a.Create(ctx, actor(), ep, own...)
			if err != nil {
				return err
			}
			return e.changed("created", res)
		})
	})
}
