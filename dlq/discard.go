package dlq

import (
	"context"
	"fmt"
	"os"
)

// discard writes tombstones. The export of all that goes is on disk before the first.
func (r *runner) discard(ctx context.Context) error {
	if r.plan.Job.Export != "" && r.plan.Count > 0 {
		if err := r.exportFirst(ctx); err != nil {
			return fmt.Errorf("nothing was discarded, because the export failed: %w", err)
		}
	}
	stop, err := r.beside(ctx)
	if err != nil {
		return err
	}
	defer stop()
	return r.all(ctx, r.plan.offsets, func(ctx context.Context, e *Entry) error {
		if err := r.admit(ctx, entryWeight); err != nil {
			return err
		}
		if r.isGone(e) { // what was replayed is not to be called discarded
			r.room.Release(entryWeight)
			r.skip(SkipSettled)
			return nil
		}
		r.settle(e, settledDiscarded, entryWeight)
		return nil
	})
}

func (r *runner) exportFirst(ctx context.Context) error {
	job := &r.plan.Job
	if job.Export == Stdout {
		_, err := r.store.Export(ctx, r.opts.Stdout, r.plan.Selection, job.Filter)
		return err
	}
	if _, err := os.Lstat(job.Export); err == nil && job.resume != "" {
		// Whether that file is the first runner's, and holds all that is left, is not
		// known; it stays as it is, because some of it may be nowhere else.
		job.Export = resumedName(job.Export)
	}
	if _, err := r.store.ExportFile(ctx, job.Export, r.plan.Selection, job.Filter); err != nil {
		return err
	}
	r.exported = job.Export
	return nil
}
