package main

import (
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/config"
)

func (p *program) configCommand() *cobra.Command {
	return group("config", "Show or check the configuration", "  milena config print --config milena.yaml",
		p.configPrintCommand(), p.configCheckCommand())
}

func (p *program) configPrintCommand() *cobra.Command {
	var asJSON bool
	cmd := settings(&cobra.Command{Use: "print", Args: noArgs,
		Short:   "Show every setting, its value and where it came from; secrets are masked",
		Example: "  MILENA_LOG_LEVEL=debug milena config print --brokers kafka-1:9092\n  milena config print --json | jq -r 'select(.source != \"default\")'"})
	jsonFlag(cmd, &asJSON)
	return p.verb(cmd, func(cmd *cobra.Command, _ []string) error {
		loaded, err := p.load(cmd, false)
		if err != nil {
			return err
		}
		if asJSON {
			for _, v := range loaded.Values() {
				if err := p.writeJSON(v); err != nil {
					return err
				}
			}
			return nil
		}
		return p.writeValues(loaded.Values())
	})
}

func (p *program) writeValues(values []config.Value) error {
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	for _, v := range values {
		value := safe(v.Value)
		if value == "" {
			value = "-"
		}
		if _, err := w.Write([]byte(v.Key + "\t" + value + "\t" + safe(v.Source) + "\n")); err != nil {
			return err
		}
	}
	return w.Flush()
}

func (p *program) configCheckCommand() *cobra.Command {
	cmd := settings(&cobra.Command{Use: "check", Args: noArgs,
		Short:   "Look for mistakes in the configuration, as serve would before it touches anything",
		Example: "  milena config check --config milena.yaml"})
	return p.verb(cmd, func(cmd *cobra.Command, _ []string) error {
		loaded, err := p.load(cmd, true)
		if err != nil {
			return err
		}
		if _, err := ring(loaded); err != nil {
			return usage("%w", err)
		}
		p.notef("the configuration has no mistakes")
		return nil
	})
}
