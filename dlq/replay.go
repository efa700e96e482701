package dlq

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

const (
	inFlightBytes = 24 << 20 // of letters whose tombstone is not acknowledged
	entryWeight   = 2 << 10  // of a letter beside its payload
)

// replayer writes letters to deliveries: write, ack, tombstone, ack.
type replayer struct {
	*runner
	partitions int32 // of deliveries
	outcomes   *follower

	mu     sync.Mutex
	failed map[string]string  // endpoints whose canary was not delivered, and why they are skipped
	sent   map[place]struct{} // canaries
}

type place struct {
	part   int32
	offset int64
}

func (r *runner) replay(ctx context.Context, outcomes *follower) error {
	n, err := r.store.reader.Partitions(ctx, r.store.names.Deliveries())
	if err != nil {
		return explain(err, r.store.names.Deliveries(), "Write")
	}
	rp := &replayer{runner: r, partitions: n, outcomes: outcomes, sent: map[place]struct{}{}}
	stop, err := r.beside(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if r.plan.Job.Canary {
		if err := rp.canaries(ctx); err != nil {
			return err
		}
	}
	if r.plan.Job.EndpointRate > 0 {
		err = rp.allInSlots(ctx)
	} else {
		err = rp.all(ctx, r.plan.offsets, rp.send)
	}
	return err
}

// all reads the partitions in turns, so that no owner gets all of it at once.
func (r *runner) all(ctx context.Context, offsets map[int32][]int64, fn func(context.Context, *Entry) error) error {
	return eachPartition(ctx, offsets, func(ctx context.Context, p int32, offsets []int64, chunk int32, t *turn) error {
		return r.store.reread(ctx, r.plan.Selection, p, offsets, chunk, t, func(e *Entry) error { return fn(ctx, e) })
	})
}

// chunksAtOnce bounds memory: a chunk is at least one batch, which takes up to 18 MiB
// when it is unpacked.
const chunksAtOnce = 3

func eachPartition(ctx context.Context, offsets map[int32][]int64, fn func(ctx context.Context, p int32, offsets []int64, chunk int32, t *turn) error) error {
	group, gctx := errgroup.WithContext(ctx)
	turns := make(chan struct{}, chunksAtOnce)
	for _, p := range slices.Sorted(maps.Keys(offsets)) {
		group.Go(func() error { return fn(gctx, p, offsets[p], chunkFor(chunksAtOnce), &turn{of: turns}) })
	}
	return group.Wait()
}

// allInSlots gives every letter the next slot of its endpoint. What would have to
// wait beyond the horizon is left for another reading, so that one endpoint with
// many letters does not stand in the way of the others.
func (rp *replayer) allInSlots(ctx context.Context) error {
	q := newQueue()
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return q.run(gctx, rp.send) })
	group.Go(func() error {
		defer q.close()
		offsets := rp.plan.offsets
		for len(offsets) > 0 {
			began := time.Now()
			left, err := rp.pass(gctx, offsets, q)
			if err != nil {
				return err
			}
			offsets = left
			if len(left) == 0 {
				break
			}
			select { // a reading of everything must not be most of the work
			case <-time.After(max(horizon/2, time.Since(began))):
			case <-gctx.Done():
				return gctx.Err()
			}
		}
		return nil
	})
	return group.Wait()
}

func (rp *replayer) pass(ctx context.Context, offsets map[int32][]int64, q *queue) (map[int32][]int64, error) {
	var mu sync.Mutex
	left := map[int32][]int64{}
	err := rp.all(ctx, offsets, func(ctx context.Context, e *Entry) error {
		if rp.refuse(e) {
			return nil
		}
		at, ok := rp.pace.slot(rp.targetOf(e.EndpointID), time.Now())
		if !ok {
			mu.Lock()
			left[e.Partition] = append(left[e.Partition], e.Offset)
			mu.Unlock()
			return nil
		}
		return q.put(ctx, at, e)
	})
	return left, err
}

// targetOf is where the letters of an endpoint go.
func (rp *replayer) targetOf(endpoint string) string {
	if to := rp.plan.Job.ToEndpoint; to != "" {
		return to
	}
	return endpoint
}

// refuse reports whether a letter is not to be written, and counts why if that was
// not known when it was planned.
func (rp *replayer) refuse(e *Entry) bool {
	if rp.plan.skips(e.EndpointID) != "" {
		return true // counted already
	}
	rp.mu.Lock()
	_, canary := rp.sent[place{e.Partition, e.Offset}]
	failed := rp.failed[e.EndpointID]
	rp.mu.Unlock()
	switch {
	case canary:
		return true
	case failed != "":
		rp.skip(failed)
		return true
	}
	return false
}

// send writes one letter when its time has come. It returns before it is acknowledged.
func (rp *replayer) send(ctx context.Context, e *Entry) error {
	if rp.plan.Job.EndpointRate == 0 && rp.refuse(e) {
		return nil
	}
	return rp.write(ctx, e)
}

func (rp *replayer) write(ctx context.Context, e *Entry) error {
	weight := int64(min(e.Size+entryWeight, inFlightBytes))
	if err := rp.admit(ctx, weight); err != nil {
		return err
	}
	if rp.isGone(e) { // as late as can be
		rp.room.Release(weight)
		rp.skip(SkipSettled)
		return nil
	}
	d := revive(e, rp.run.ID, rp.plan.Job.ToEndpoint, time.Now())
	m := kafka.Message{Topic: rp.store.names.Deliveries(), Partition: kafka.Partition([]byte(d.EndpointID), rp.partitions),
		Key: []byte(d.EndpointID), Value: d.Payload, Headers: d.Headers()}
	if rp.outcomes != nil {
		rp.outcomes.expect(&d)
	}
	rp.writer.Write(m, func(res kafka.Written) {
		if res.Err != nil {
			rp.room.Release(weight)
			if errors.Is(res.Err, kafka.ErrTooLarge) {
				rp.skip(SkipTooLarge)
			}
			if rp.outcomes != nil {
				rp.outcomes.forget(&d)
			}
			return
		}
		rp.written.Add(1)
		rp.settle(e, settledReplayed, weight)
	})
	return nil
}

// admit waits until something may be written that weighs so much: the rate allows it,
// there is room, which whoever writes gives back, and the run is this process's still.
// That is asked last: the other two may take longer than it takes to lose a run.
func (r *runner) admit(ctx context.Context, weight int64) error {
	if err := r.pace.wait(ctx); err != nil {
		return err
	}
	if err := r.room.Acquire(ctx, weight); err != nil {
		return err
	}
	if err := r.live(ctx); err != nil {
		r.room.Release(weight)
		return err
	}
	return nil
}

// settle writes the tombstone of a letter.
func (r *runner) settle(e *Entry, how string, weight int64) {
	r.writer.Write(tombstone(r.store.topic, e, r.run.ID, how), func(res kafka.Written) {
		if res.Err == nil {
			r.settled.Add(1)
			if how == settledDiscarded {
				r.written.Add(1) // there is nothing else to write
			}
		}
		r.room.Release(weight)
	})
}

// put writes a record with which what it was made of is done. It returns before it is
// acknowledged.
func (r *runner) put(ctx context.Context, m kafka.Message) error {
	weight := int64(min(len(m.Value)+entryWeight, inFlightBytes))
	if err := r.admit(ctx, weight); err != nil {
		return err
	}
	r.writer.Write(m, func(res kafka.Written) {
		switch {
		case res.Err == nil:
			r.written.Add(1)
			r.settled.Add(1)
		case errors.Is(res.Err, kafka.ErrTooLarge):
			r.skip(SkipTooLarge)
		}
		r.room.Release(weight)
	})
	return nil
}

// drain waits until all that was written is settled.
func (r *runner) drain(ctx context.Context) error {
	if err := r.room.Acquire(ctx, inFlightBytes); err != nil {
		return err
	}
	r.room.Release(inFlightBytes)
	return nil
}

// detach makes an entry whose bytes are its own, so that a letter that waits does not
// keep all that was fetched with it.
func (e *Entry) detach() *Entry {
	c := *e
	c.Payload = bytes.Clone(e.Payload)
	c.Extra = slices.Clone(e.Extra)
	for i := range c.Extra {
		c.Extra[i].Value = bytes.Clone(c.Extra[i].Value)
	}
	c.rec = schemas.Record{Partition: e.rec.Partition, Offset: e.rec.Offset, Key: bytes.Clone(e.rec.Key)}
	return &c
}
