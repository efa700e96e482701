package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/dlq"
)

func (p *program) dlqImportCommand() *cobra.Command {
	f := &dlqFlags{}
	var why string
	var check, force bool
	cmd := &cobra.Command{Use: "import FILE", Args: oneArg("FILE"),
		Short: "Put exported dead letters back, byte for byte",
		Long: `Put exported dead letters back, byte for byte. FILE is what milena dlq export or discard wrote, compressed
or not, or - for standard input. It is read to its end and its checksum compared before anything is
written. A letter that is there already, or of which a later life is, stays as it is. Any other is open
again then, also if it was replayed or discarded since: as the newest of its lives that the topic knows, so
that a replay sends it however old the file is.`,
		Example: "  milena dlq import shop-42.jsonl.gz --because 'discarded by mistake'"}
	cmd.Flags().StringVar(&why, "because", "", "why; kept with the run and in the audit log")
	cmd.Flags().BoolVar(&check, "dry-run", false, "only look whether the file is whole, and what of it is there already")
	cmd.Flags().BoolVar(&force, "force", false, "beside a live discard, which may discard them again")
	jsonFlag(cmd, &f.json)
	return p.dlqVerb(cmd, f, func(r *dlqRun, args []string) error {
		if err := r.mayRun(); err != nil && !check {
			return err
		}
		file, done, err := p.seekable(args[0])
		if err != nil {
			return usage("%w", err)
		}
		defer done()
		end, err := dlq.Verify(file)
		if err != nil {
			return fmt.Errorf("%s: %w", safe(args[0]), err)
		}
		if !end.Complete {
			r.notef("milena: the export was ended early: it has not all that was selected then")
		}
		if check || end.Letters == 0 {
			return r.previewImport(end, f.json)
		}
		plan := dlq.PlanImport(actor().Who, why, args[0], end)
		plan.Job.Force = force
		return r.execute(cmd.Context(), plan, dlq.Options{Source: file}, f.json)
	})
}

// previewImport says what an import would do, as one line with asJSON.
func (r *dlqRun) previewImport(source *dlq.Verified, asJSON bool) error {
	wait := r.watch()
	there, err := r.store.There(r.cmd.Context(), source)
	wait.end()
	if err != nil {
		return err
	}
	if asJSON {
		return r.writeJSON(struct {
			Matched  int64            `json:"matched"`
			Write    int64            `json:"write"`
			Skip     map[string]int64 `json:"skip"`
			Complete bool             `json:"complete"`
		}{source.Letters, source.Letters - there, map[string]int64{dlq.SkipThere: there}, source.Complete})
	}
	r.notef("%s, the checksum is right; %d to import, %d there already", counted(source.Letters, "dead letter"), source.Letters-there, there)
	return nil
}

// seekable opens a file, or keeps standard input in one, because it is read twice.
func (p *program) seekable(name string) (file *os.File, done func(), err error) {
	if name != dlq.Stdout {
		file, err = os.Open(name)
		return file, func() { _ = file.Close() }, err
	}
	if file, err = os.CreateTemp("", "milena-import-*"); err != nil {
		return nil, nil, err
	}
	done = func() {
		_ = file.Close()
		_ = os.Remove(file.Name())
	}
	if _, err = io.Copy(file, p.in); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
	}
	return file, done, err
}
