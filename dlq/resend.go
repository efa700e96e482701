package dlq

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// Past selects first deliveries by what stands in the deliveries topic: also what
// succeeded, and what was never attempted. What Milena itself wrote there later
// (retries, replays, resends) is no delivery of its own and is passed over.
type Past struct {
	Event     string    // the producer's event id, or the message id
	Delivery  string    // delivery id
	Endpoints []string  // one of these; none: any
	Since     time.Time // written then or later; zero: as far back as the topic goes
	Until     time.Time // written before; zero: now
	Missing   bool      // only what has no delivered attempt and nothing else is on its way for
	Sources   *Sources  // nil: only what stands in deliveries
}

// PlanResend selects what a resend would send again, and reports what became of the
// deliveries of the window, by endpoint. Nothing is written. Offsets of the plan are
// those of deliveries.
func (s *Store) PlanResend(ctx context.Context, job Job, past Past) (*Plan, map[string]*Gap, error) {
	job.Kind, job.Filter = schemas.RunResend, past.filter()
	r, err := s.selectPast(ctx, past)
	if err != nil {
		return nil, nil, err
	}
	return &Plan{Job: job, Selection: &r.sel, Write: r.sel.Count}, r.gaps, nil
}

func (s *Store) selectPast(ctx context.Context, past Past) (*resending, error) {
	topic := s.names.Deliveries()
	ends, err := s.reader.Ends(ctx, topic)
	if err != nil {
		return nil, explain(err, topic, "Read")
	}
	from, to, err := s.window(ctx, topic, past, ends)
	if err != nil {
		return nil, err
	}
	r := &resending{store: s, past: past, gaps: map[string]*Gap{}, newest: map[uint64]newestLife{}}
	if r.starts, err = s.reader.Starts(ctx, topic); err != nil {
		return nil, explain(err, topic, "Read")
	}
	r.sel = Selection{Snapshot: Snapshot{}, Shares: map[string]*Share{}, Unfit: map[string]int64{}, offsets: map[int32][]int64{}}
	for p, end := range ends {
		r.sel.Snapshot[int32(p)] = end
	}
	if past.Missing {
		if err := r.readTraces(ctx, from); err != nil {
			return nil, err
		}
	}
	if err := r.read(ctx, from, to); err != nil {
		return nil, err
	}
	if past.Sources != nil {
		err = r.readSources(ctx)
	}
	return r, err
}

// filter is what the run's record says of the selection.
func (p *Past) filter() Filter {
	f := Filter{Endpoints: sorted(p.Endpoints), Since: p.Since, Until: p.Until}
	for _, id := range []string{p.Event, p.Delivery} {
		if id != "" {
			f.IDs = append(f.IDs, id)
		}
	}
	return f
}

// endpoints are those that all selected deliveries belong to; nil: there may be others.
func (p *Past) endpoints() []string {
	if len(p.Endpoints) > 0 {
		return p.Endpoints
	}
	if _, id, _ := schemas.ParseDeliveryID(p.Delivery); id != "" { // no id: it is of none
		return []string{id}
	}
	return nil
}

func (s *Store) window(ctx context.Context, topic string, past Past, ends []int64) (from, to []int64, err error) {
	from, to = make([]int64, len(ends)), ends
	if !past.Since.IsZero() {
		if from, err = s.reader.After(ctx, topic, past.Since); err != nil {
			return nil, nil, explain(err, topic, "Read")
		}
	}
	if !past.Until.IsZero() {
		if to, err = s.reader.After(ctx, topic, past.Until); err != nil {
			return nil, nil, explain(err, topic, "Read")
		}
	}
	return from, to, nil
}

// resending is a selection that is being made. It takes 9 to 12 bytes for each delivery
// of the window that was attempted, has died or is selected, each, and about 56 more where it was
// replayed or sent again.
type resending struct {
	store  *Store
	past   Past
	held   map[string]bool        // endpoints that have work on hold
	unread map[int32]kafka.Commit // what the dispatcher has committed: from there on it has yet to come

	mu        sync.Mutex
	starts    []int64 // of deliveries, by partition
	history   results
	deaths    results               // by hash of letters' keys
	newest    map[uint64]newestLife // by hash of delivery id, of those that were replayed or sent again
	back      []time.Time           // by partition of attempts: how far they go back; zero: nothing has gone
	expired   time.Time             // retention has taken attempts of before then; zero: it takes none
	coming    seen                  // hashes of the ids of deliveries that were sent again, or have a record that nobody has read yet
	elsewhere seen                  // hashes of the keys of letters that were replayed to another endpoint
	moved     seen                  // those that were forwarded to what is another endpoint's partition now
	known     seen                  // hashes of the ids of what sources became in deliveries
	gaps      map[string]*Gap
	sel       Selection
}

// parallel reads several partitions at the same time: of some endpoints those in which they
// can be, of which it passes over the batches that name none of them. Deliveries may be in any,
// for producers have partitioners of their own.
func (r *resending) parallel(ctx context.Context, topic string, from, to []int64, fn func(*schemas.Record) error) error {
	endpoints := r.past.endpoints()
	parts := partitionsOf(endpoints, int32(len(to)))
	if topic == r.store.names.Deliveries() {
		parts = every(int32(len(to)))
	}
	var wanted func([]byte) bool
	if endpoints != nil {
		wanted = func(batch []byte) bool {
			return slices.ContainsFunc(endpoints, func(id string) bool { return bytes.Contains(batch, []byte(id)) })
		}
	}
	return r.store.forwards(ctx, topic, parts, from, to, wanted, fn)
}

// forwards hands over ranges of partitions of a topic, several at a time: the batches
// that are wanted; nil: all.
func (s *Store) forwards(ctx context.Context, topic string, parts []int32, from, to []int64, wanted func([]byte) bool, fn func(*schemas.Record) error) error {
	group, gctx := errgroup.WithContext(ctx)
	parallel := width(len(parts))
	group.SetLimit(parallel)
	each := func(recs []schemas.Record) error {
		for i := range recs {
			if err := fn(&recs[i]); err != nil {
				return err
			}
		}
		return gctx.Err()
	}
	for _, p := range parts {
		group.Go(func() error {
			if wanted != nil {
				return s.reader.Sift(gctx, topic, p, from[p], to[p], chunkFor(parallel), wanted, each)
			}
			return s.reader.ReadForwards(gctx, topic, p, from[p], to[p], chunkFor(parallel), each)
		})
	}
	return explain(group.Wait(), topic, "Read")
}

// since is where a topic's records of the window may begin: those that were written
// later than since, and a margin for clocks before. Without since it is the start.
func (r *resending) since(ctx context.Context, topic string, partitions int) ([]int64, error) {
	if r.past.Since.IsZero() {
		return make([]int64, partitions), nil
	}
	from, err := r.store.reader.After(ctx, topic, r.past.Since.Add(-clockMargin))
	return from, explain(err, topic, "Read")
}

// onwards is all of a topic from there on, up to its ends of now.
func (r *resending) onwards(ctx context.Context, topic string) (from, ends []int64, err error) {
	if ends, err = r.store.reader.Ends(ctx, topic); err != nil {
		return nil, nil, explain(err, topic, "Read")
	}
	from, err = r.since(ctx, topic, len(ends))
	return from, ends, err
}

func (r *resending) read(ctx context.Context, from, to []int64) error {
	err := r.parallel(ctx, r.store.names.Deliveries(), from, to, func(rec *schemas.Record) error {
		d, err := schemas.ParseDelivery(*rec)
		if err == nil && r.original(&d, rec) && r.wanted(&d, rec) {
			r.take(&d, rec)
		}
		return nil
	})
	for _, offsets := range r.sel.offsets {
		slices.Sort(offsets)
	}
	return err
}

// original reports whether a record is the first of its delivery in deliveries, as a
// producer or the router wrote it, wherever its partitioner or an earlier number of
// partitions has put it. When that is gone, the copy stands for it that was forwarded to
// the right partition.
func (r *resending) original(d *schemas.Delivery, rec *schemas.Record) bool {
	o := d.Origin
	switch {
	case d.Generation > 0 || d.Attempt > 0 || d.Run != "" || !d.Released.IsZero() || d.ResendOf != "":
		return false
	case d.Forwards > 0:
		return o.Topic == rec.Topic && int(o.Partition) < len(r.starts) && o.Offset < r.starts[o.Partition]
	}
	return o.Topic != rec.Topic || (o.Partition == rec.Partition && o.Offset == rec.Offset)
}

func (r *resending) wanted(d *schemas.Delivery, rec *schemas.Record) bool {
	p := &r.past
	return oneOf(p.Endpoints, d.EndpointID) &&
		(p.Delivery == "" || p.Delivery == d.ID()) &&
		(p.Event == "" || p.Event == d.Event.ID || p.Event == d.MessageID()) &&
		(p.Since.IsZero() || !rec.Timestamp.Before(p.Since)) && (p.Until.IsZero() || rec.Timestamp.Before(p.Until))
}

func (r *resending) take(d *schemas.Delivery, rec *schemas.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count(d, rec, rec.Offset >= r.unread[rec.Partition].Offset) {
		r.sel.offsets[rec.Partition] = append(r.sel.offsets[rec.Partition], rec.Offset)
	}
}

// count reports whether a delivery is selected, and counts it; the lock is held. open
// is as in missing.
func (r *resending) count(d *schemas.Delivery, rec *schemas.Record, open bool) bool {
	if r.past.Missing && !r.missing(d, rec, open) {
		return false
	}
	share := r.sel.Shares[d.EndpointID]
	if share == nil {
		share = &Share{Reasons: map[schemas.Reason]int64{}}
		r.sel.Shares[d.EndpointID] = share
	}
	share.Count++
	r.sel.Count++
	r.sel.Bytes += int64(len(d.Payload))
	if r.sel.Oldest.IsZero() || rec.Timestamp.Before(r.sel.Oldest) {
		r.sel.Oldest = rec.Timestamp
	}
	if rec.Timestamp.After(r.sel.Newest) {
		r.sel.Newest = rec.Timestamp
	}
	return true
}

// again is a new delivery of the same event: it has the same message id, and is no
// duplicate to us.
func again(d *schemas.Delivery) schemas.Delivery {
	n := schemas.Delivery{EndpointID: d.EndpointID, Event: d.Event, Payload: d.Payload, ResendOf: d.ID(),
		Traceparent: d.Traceparent, Tracestate: d.Tracestate}
	for _, h := range d.Extra {
		if !strings.HasPrefix(strings.ToLower(h.Key), "milena-") {
			n.Extra = append(n.Extra, h)
		}
	}
	return n
}

// resend writes what was selected.
func (r *runner) resend(ctx context.Context) error {
	topic := r.store.names.Deliveries()
	n, err := r.store.reader.Partitions(ctx, topic)
	if err != nil {
		return explain(err, topic, "Write")
	}
	if src := r.plan.sources; src != nil {
		if err := r.resendSources(ctx, src, n); err != nil {
			return err
		}
	}
	return eachPartition(ctx, r.plan.offsets, func(ctx context.Context, p int32, offsets []int64, chunk int32, t *turn) error {
		return r.store.records(ctx, topic, p, offsets, chunk, t, func(rec *schemas.Record) error {
			d, err := schemas.ParseDelivery(*rec)
			if err != nil {
				return fmt.Errorf("%s/%d at offset %d: %w", topic, p, rec.Offset, err)
			}
			return r.resendOne(ctx, &d, kafka.Partition([]byte(d.EndpointID), n))
		})
	})
}

func (r *runner) resendOne(ctx context.Context, d *schemas.Delivery, partition int32) error {
	next := again(d)
	next.Run = r.run.ID
	return r.put(ctx, kafka.Message{Topic: r.store.names.Deliveries(), Partition: partition, Key: []byte(next.EndpointID), Value: next.Payload, Headers: next.Headers()})
}
