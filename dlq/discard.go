package dlq

import (
	"context"
	"fmt"
)

// discard writes tombstones. The export of all that goes is on disk before the first.
func (r *runner) discard(ctx context.Context) error {
	if r.plan.Job.Export != "" {
		if err := r.exportFirst(ctx); err != nil {
			return fmt.Errorf("nothing was discarded, because the export failed: %w", err)
		}
	}
	return r.all(ctx, r.plan.offsets, func(ctx context.Context, e *Entry) error {
		if err := r.live(ctx); err != nil {
			return err
		}
		if err := r.pace.wait(ctx); err != nil {
			return err
		}
		if err := r.room.Acquire(ctx, entryWeight); err != nil {
			return err
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
	if job.resume != "" {
		// What is left is a part of what was selected first. If that is on disk whole,
		// it must stay as it is: some of it is nowhere else.
		if end, err := VerifyFile(job.Export); err == nil && end.Complete {
			return nil
		}
		job.Export = resumedName(job.Export)
	}
	return r.store.ExportFile(ctx, job.Export, r.plan.Selection, job.Filter)
}
