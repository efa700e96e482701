package main

import (
	"compress/gzip"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
)

func (p *program) dlqExportCommand() *cobra.Command {
	f := &dlqFlags{}
	var to string
	var zip, failEmpty bool
	cmd := &cobra.Command{Use: "export", Args: noArgs,
		Short: "Write dead letters to a file, byte for byte, that milena dlq import reads",
		Long: `Write dead letters to a file, byte for byte: JSON lines with key, headers and payload (base64), and a
last line with their number and a checksum. milena dlq import brings them back. Where nothing matches, no
file is made; standard output gets an export of none. A file that is there already is not written over. Until
it is whole its name is that with a random part and .part, which an export that is killed leaves behind.`,
		Example: "  milena dlq export --endpoint shop-42 --to shop-42.jsonl.gz\n  milena dlq export --since 24h | jq 'select(.line == \"letter\") | .key'"}
	filterFlags(cmd, &f.query)
	cmd.Flags().StringVar(&to, "to", dlq.Stdout, "`file` to make (.gz compresses), or - for standard output")
	cmd.Flags().BoolVar(&zip, "gzip", false, "compress standard output")
	cmd.Flags().BoolVar(&failEmpty, "fail-empty", false, "exit code 1 if nothing matches")
	f.before = func(dlq.Filter) error {
		switch {
		case zip && to != dlq.Stdout:
			return usage("--gzip is for standard output; a file is compressed when its name ends in .gz")
		case zip && isTTY(p.out):
			return usage("--gzip would write to a terminal what nobody can read; say --to FILE.gz, or send it to a file or a pipe")
		}
		return vacant("to", to)
	}
	return p.dlqVerb(cmd, f, func(r *dlqRun, _ []string) error {
		wait := r.watch()
		sel, err := r.store.Select(cmd.Context(), r.filter)
		wait.end()
		if err != nil {
			return err
		}
		if sel.Count == 0 {
			r.sayUnmatched()
			if to == dlq.Stdout { // who reads it by a pipe shall read a whole export
				_, err = r.exportTo(r.out, zip, sel)
			}
			if err == nil && failEmpty {
				return &exit{code: exitFailed}
			}
			return err
		}
		wait = r.watch()
		var end dlq.ExportEnd
		if to != dlq.Stdout {
			end, err = r.store.ExportFile(cmd.Context(), to, sel, r.filter)
		} else {
			end, err = r.exportTo(r.out, zip, sel)
		}
		wait.end()
		if err != nil {
			return err
		}
		if gone := sel.Count - end.Letters; gone > 0 {
			r.notef("%d of %d dead letters exported; the topic has %d no longer: their retention ended", end.Letters, sel.Count, gone)
			return nil
		}
		r.notef("%d dead letters, %s of payload, exported", sel.Count, sizeText(sel.Bytes))
		return nil
	})
}

// vacant looks whether a file of that name can be made: none is written over.
func vacant(flag, name string) error {
	if _, err := os.Lstat(name); err == nil && name != dlq.Stdout {
		return usage("--%s: %s is there already, and is not written over", flag, name)
	}
	return nil
}

func (r *dlqRun) exportTo(w io.Writer, zip bool, sel *dlq.Selection) (dlq.ExportEnd, error) {
	if !zip {
		return r.store.Export(r.cmd.Context(), w, sel, r.filter)
	}
	z := gzip.NewWriter(w)
	end, err := r.store.Export(r.cmd.Context(), z, sel, r.filter)
	return end, errors.Join(err, z.Close())
}
