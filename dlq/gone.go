package dlq

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/milena-project/milena/schemas"
)

const goneEvery = time.Second

// beside looks at what others settle, from the snapshot on (a prompt may have stood for an
// hour) and until it is stopped.
func (r *runner) beside(ctx context.Context) (stop func(), err error) {
	at, err := r.lookBack(ctx)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { r.watchOthers(ctx, at) })
	return func() { end(); wg.Wait() }, nil
}

// lookBack reads what was settled since the snapshot was taken: by others, and by
// earlier runners of this run. A plan may be older than what they did. It returns how
// far it has read.
func (r *runner) lookBack(ctx context.Context) (Snapshot, error) {
	at := maps.Clone(r.plan.Snapshot)
	unneeded := func(p int32, _ int64) bool { return len(r.plan.offsets[p]) == 0 }
	if r.plan.Job.resume == "" { // else an earlier runner may have settled all of a partition
		maps.DeleteFunc(at, unneeded)
	}
	before, err := r.look(ctx, at, nil)
	r.before.Store(before)
	maps.DeleteFunc(at, unneeded)
	return at, explain(err, r.store.topic, "Read")
}

// watchOthers reads what is written to the topic meanwhile: a letter that another
// run settles is not settled a second time, also when that was long ago by the time
// its turn comes.
func (r *runner) watchOthers(ctx context.Context, at Snapshot) {
	for range ticks(ctx, goneEvery) {
		if _, err := r.look(ctx, at, []byte(r.run.ID)); err != nil && ctx.Err() == nil {
			r.store.log.Warn("what others settle cannot be read, trying again", "run", r.run.ID, "err", err)
		}
	}
}

// look notes the tombstones from at on, but for those of the run besides, and returns
// how many of them are this run's.
func (r *runner) look(ctx context.Context, at Snapshot, besides []byte) (own int64, err error) {
	ends, err := r.store.reader.Ends(ctx, r.store.topic)
	if err != nil {
		return 0, err
	}
	run := []byte(r.run.ID)
	for p := range at {
		if int(p) >= len(ends) || at[p] >= ends[p] {
			continue
		}
		err := r.store.reader.ReadForwards(ctx, r.store.topic, p, at[p], ends[p], 1<<20, func(recs []schemas.Record) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			for i := range recs {
				rec := &recs[i]
				if rec.Value != nil || besides != nil && carries(rec.Headers, schemas.HeaderRun, besides) {
					continue
				}
				if r.gone.add(hashOf(rec.Key)) && carries(rec.Headers, schemas.HeaderRun, run) {
					own++
				}
			}
			return ctx.Err()
		})
		if err != nil {
			return own, err
		}
		at[p] = ends[p]
	}
	return own, nil
}

// isGone reports whether somebody was seen to settle a letter.
func (r *runner) isGone(e *Entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone.n > 0 && r.gone.has(hashOf(e.rec.Key))
}

// countGone counts what was selected and is no longer in the topic when all is done.
func (r *runner) countGone() {
	counts := r.snapshot().Counts
	left := counts.Matched - counts.Written
	for _, n := range counts.Skipped {
		left -= n
	}
	if left > 0 {
		r.mu.Lock()
		r.skipped[SkipGone] += left
		r.mu.Unlock()
	}
}

func carries(headers []schemas.Header, key string, value []byte) bool {
	for i := range headers {
		if headers[i].Key == key && bytes.Equal(headers[i].Value, value) {
			return true
		}
	}
	return false
}
