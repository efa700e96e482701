package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/registry"
)

func (p *program) endpointRekeyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "rekey", Args: noArgs,
		Short: "Seal every secret anew with the first key of the key ring, so that the others can be taken away",
		Long: `Seal every secret anew with the first key of the key ring: signing secrets, passwords, tokens and keys of client certificates.
To replace a key: put the new one in front of the ring, restart every process with it, run this, then take the old one away.
No endpoint's configuration changes and no receiver notices. Interrupted, it is simply run again.`,
		Example: "  MILENA_KEYRING=new:...,old:... milena endpoint rekey"}
	return p.endpointVerb(cmd, func(e *endpointRun, _ []string) error {
		return e.with(true, func(ctx context.Context, a *registry.Admin) error {
			n, err := a.Rekey(ctx, actor())
			if _, partly := errors.AsType[*registry.UnreadableError](err); err != nil && !partly {
				return err
			}
			if !e.json {
				e.printf("%s sealed anew\n", counted(int64(n), "endpoint"))
				return err
			}
			return errors.Join(e.writeJSON(struct {
				Rekeyed int `json:"rekeyed"`
			}{n}), err)
		})
	})
}
