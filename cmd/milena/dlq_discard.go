package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/schemas"
)

func (p *program) dlqDiscardCommand() *cobra.Command {
	f := &jobFlags{}
	var export string
	var noExport bool
	cmd := &cobra.Command{Use: "discard", Args: noArgs,
		Short: "Take dead letters out of the topic, after they were exported",
		Long: `Take dead letters out of the topic. They are written to --export-to first, from where milena dlq import
brings them back; on a terminal without --export-to, to a new file in this directory.`,
		Example: "  milena dlq discard --endpoint shop-42 --reason endpoint_deleted --because 'customer left'\n" +
			"  milena dlq discard --tenant test --because 'load test' --export-to test.jsonl.gz --yes"}
	filterFlags(cmd, &f.query)
	f.add(cmd, allLetters)
	cmd.Flags().StringVar(&export, "export-to", "", "`file` that the letters are written to first (.gz compresses), or - for standard output")
	cmd.Flags().BoolVar(&noExport, "no-export", false, "write no export: they are gone for good")
	return p.dlqJob(cmd, f, func() error {
		f.job.Kind = schemas.RunDiscard
		switch {
		case f.job.Why == "" && !f.dryRun:
			return usage("say --because: a discard is for good, and somebody will ask")
		case export != "" && noExport:
			return usage("only one of --export-to and --no-export")
		case export == "" && !noExport && !f.dryRun && !p.terminal():
			return usage("say --export-to FILE (or - for standard output), or --no-export")
		case export == dlq.Stdout && f.json:
			return usage("--json and --export-to - would both write to standard output")
		case export == "" && !noExport:
			export = "dlq-discarded-" + time.Now().UTC().Format("20060102-150405") + ".jsonl.gz"
		}
		f.job.Export = export
		return vacant("export-to", export)
	})
}
