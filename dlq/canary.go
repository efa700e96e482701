package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// canaryRounds is how many letters of an endpoint are tried for one that tells
// something: one that another run settled, or whose copy of another run was first,
// says nothing of the endpoint.
const canaryRounds = 5

const canaryGood = "good" // else why the endpoint gets no more

// canaries sends the oldest letter of each endpoint and waits for what its first
// attempt comes to. Endpoints where it was not delivered get no more.
func (rp *replayer) canaries(ctx context.Context) error {
	rp.outcomes.note(true, true)
	rp.probing.Store(true)
	defer rp.probing.Store(false)
	known := map[string]string{} // by the endpoint that was sent to
	next := rp.firstCanaries()
	for range canaryRounds {
		if len(next) == 0 {
			break
		}
		told, err := rp.sendCanaries(ctx, next)
		if err != nil {
			return fmt.Errorf("waiting for the canaries: %w", err)
		}
		maps.Copy(known, told)
		if next, err = rp.nextCanaries(ctx, known); err != nil {
			return err
		}
	}
	rp.outcomes.note(rp.opts.Wait && rp.plan.Job.resume == "", false)
	rp.mu.Lock()
	defer rp.mu.Unlock()
	rp.failed = map[string]string{}
	for id := range rp.plan.Shares {
		if why := known[rp.targetOf(id)]; why != canaryGood {
			rp.failed[id] = cmp.Or(why, SkipLate)
		}
	}
	return nil
}

func (rp *replayer) firstCanaries() map[int32][]int64 {
	first := map[int32][]int64{}
	for _, id := range slices.Sorted(maps.Keys(rp.plan.Shares)) {
		share := rp.plan.Shares[id]
		if rp.plan.skips(id) == "" {
			first[share.part] = append(first[share.part], share.first)
			if rp.plan.Job.ToEndpoint != "" {
				break // all go to one endpoint: one is enough
			}
		}
	}
	return first
}

// sendCanaries says of which endpoints all that was sent now was delivered, and of the
// others why they get no more; those whose canaries tell nothing are left out.
func (rp *replayer) sendCanaries(ctx context.Context, next map[int32][]int64) (map[string]string, error) {
	rp.mu.Lock()
	for p := range next {
		slices.Sort(next[p])
		for _, offset := range next[p] {
			rp.sent[place{p, offset}] = struct{}{}
		}
	}
	rp.mu.Unlock()
	if err := rp.all(ctx, next, rp.write); err != nil {
		return nil, err
	}
	if err := rp.drain(ctx); err != nil {
		return nil, err
	}
	rp.waiting.Store(true)
	defer rp.waiting.Store(false)
	return rp.outcomes.first(ctx, rp.opts.CanaryWait)
}

// errEnough ends a reading that has found what it was for.
var errEnough = errors.New("enough")

// nextCanaries finds another letter for each endpoint that is not known yet. Letters
// that somebody has settled are passed over; they are counted when their turn comes.
func (rp *replayer) nextCanaries(ctx context.Context, known map[string]string) (map[int32][]int64, error) {
	var mu sync.Mutex
	wanted := map[string]bool{} // by the endpoint that is sent to
	for id := range rp.plan.Shares {
		if _, ok := known[rp.targetOf(id)]; !ok && rp.plan.skips(id) == "" {
			wanted[rp.targetOf(id)] = true
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	next := map[int32][]int64{}
	err := rp.all(ctx, rp.plan.offsets, func(_ context.Context, e *Entry) error {
		rp.mu.Lock()
		_, sent := rp.sent[place{e.Partition, e.Offset}]
		rp.mu.Unlock()
		if sent || rp.plan.skips(e.EndpointID) != "" || rp.isGone(e) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if to := rp.targetOf(e.EndpointID); wanted[to] {
			next[e.Partition] = append(next[e.Partition], e.Offset)
			delete(wanted, to)
		}
		if len(wanted) == 0 {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return next, err
}
