package health

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// Topic is what was read of health: where partitions were raised, of an endpoint's old
// ones too. The zero value has read nothing. It is not safe for concurrent use.
type Topic struct {
	views []View // by partition
}

// Read reads on to the ends of now, where the endpoints have or had their partition;
// everywhere if none is named. What was read is not read again.
func (t *Topic) Read(ctx context.Context, r *kafka.Reader, topic string, ids ...string) error {
	ends, err := r.HighWatermarks(ctx, topic)
	if err != nil {
		return err
	}
	for len(t.views) < len(ends) {
		t.views = append(t.views, View{})
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for p := range partitionsOf(ids, int32(len(ends))) { //nolint:gosec // a number of partitions
		g.Go(func() error { return t.views[p].ReadTo(ctx, r, topic, p, ends[p]) })
	}
	return g.Wait()
}

// parallel bounds how many partitions are read together.
const parallel = 8

// partitionsOf are those that endpoints have or had of n; all if none is named.
func partitionsOf(ids []string, n int32) map[int32]bool {
	parts := map[int32]bool{}
	for p := int32(0); len(ids) == 0 && p < n; p++ {
		parts[p] = true
	}
	for _, id := range ids {
		if len(parts) == int(n) {
			break
		}
		for _, p := range kafka.PartitionsEver([]byte(id), n) {
			parts[p] = true
		}
	}
	return parts
}

// Of is what holds of an endpoint that was read; nil: it is not in trouble. Its own
// partition says what it is in. One that was its own before partitions were raised says
// what it has on hold there still, and nothing else: it is sent to elsewhere, so that
// what stands there of an episode or of a pause stays as it is for ever.
// Where there is such a one, Next says that something is on hold and not where.
func (t *Topic) Of(id string) *schemas.Health {
	if len(t.views) == 0 {
		return nil
	}
	ever := kafka.PartitionsEver([]byte(id), int32(len(t.views))) //nolint:gosec // a number of partitions
	var is *schemas.Health
	if h := t.views[ever[0]].records[id]; h != nil {
		own := *h
		is = &own
	}
	for _, p := range ever[1:] {
		if h := t.views[p].records[id]; h != nil && h.Next != nil {
			is = withHold(is, h)
		}
	}
	return is
}

// withHold adds what an endpoint has on hold in another partition than its own.
func withHold(is, there *schemas.Health) *schemas.Health {
	if is == nil {
		is = &schemas.Health{Version: there.Version}
	}
	if is.Next == nil { // nothing is on hold in those before
		is.Next, is.Held, is.HeldSince, is.Written = there.Next, there.Held, there.HeldSince, there.Written
		return is
	}
	is.Held += there.Held
	is.Written = min(is.Written, there.Written) // as of which it is known
	if is.HeldSince == 0 || (there.HeldSince > 0 && there.HeldSince < is.HeldSince) {
		is.HeldSince = there.HeldSince
	}
	return is
}

// Endpoints are those in trouble, of what was read.
func (t *Topic) Endpoints() map[string]schemas.Health {
	all := map[string]schemas.Health{}
	for i := range t.views {
		for id := range t.views[i].records {
			if h := t.Of(id); h != nil {
				all[id] = *h
			}
		}
	}
	return all
}

// Owner is the partition of an endpoint that was read, and names the process that claimed
// it last, for people; empty: nobody has, or it did not say.
func (t *Topic) Owner(id string) (partition int32, process string) {
	if len(t.views) == 0 {
		return 0, ""
	}
	partition = kafka.Partition([]byte(id), int32(len(t.views))) //nolint:gosec // a number of partitions
	return partition, t.views[partition].process
}

// Claimed reports whether a process has claimed the partition of an endpoint that was read.
func (t *Topic) Claimed(id string) bool {
	return len(t.views) > 0 && t.views[kafka.Partition([]byte(id), int32(len(t.views)))].Epoch() > 0 //nolint:gosec // a number of partitions
}
