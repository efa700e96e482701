package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/egress"
)

func (p *program) egressCommand() *cobra.Command {
	return group("egress", "What the guard of outgoing connections decides", "  milena egress check https://example.com/hook", p.egressCheckCommand())
}

func (p *program) egressCheckCommand() *cobra.Command {
	var asJSON bool
	cmd := settings(&cobra.Command{Use: "check URL", Args: oneArg("URL"),
		Short:   "Say what would become of a POST to a URL, for each of its addresses, and why; nothing is sent",
		Long:    "Say what would become of a POST to a URL, for each of its addresses, and why. Nothing is sent.\nExit code 0: it would be sent; 1: it would be refused.",
		Example: "  milena egress check https://example.com/hook\n  milena egress check http://169.254.169.254/latest"})
	jsonFlag(cmd, &asJSON)
	return p.verb(cmd, func(cmd *cobra.Command, args []string) error {
		loaded, err := p.load(cmd, false)
		if err != nil {
			return err
		}
		guard, err := egress.New(loaded.EgressConfig())
		if err != nil {
			return usage("%w", err)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
		defer cancel()
		verdict, err := guard.Explain(ctx, args[0])
		if verdict.Why == "" && err != nil {
			return err
		}
		if asJSON {
			err = p.writeJSON(verdict)
		} else {
			p.writeVerdict(verdict)
			err = nil
		}
		if err == nil && !verdict.Allowed {
			return &exit{code: exitFailed}
		}
		return err
	})
}

func (p *program) writeVerdict(v egress.Verdict) {
	p.printf("%s\n%s\n", safe(v.URL), safe(v.Why))
	for _, a := range v.Addresses {
		word := "refused"
		if a.Allowed {
			word = "allowed"
		}
		p.printf("  %-40s %s  %s\n", a.Addr, word, safe(a.Rule))
	}
	if v.Proxy != "" {
		p.printf("by the forward proxy %s\n", safe(v.Proxy))
	}
}
