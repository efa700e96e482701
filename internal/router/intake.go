package router

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/milena-project/milena/internal/consume"
	"github.com/milena-project/milena/schemas"
)

// assignment is what an intake needs of a *consume.Assignment.
type assignment interface {
	Done(offset int64)
	GiveUp(offset int64)
}

// intake is one source partition for as long as it is assigned. Take queues, one
// goroutine fans out all that is queued at once: the registry answers 20 barriers a
// second, and with one for each fetch a steady stream of small fetches would be routed
// far below what comes in.
type intake struct {
	r    *Router
	a    assignment
	part consume.Partition

	more  chan struct{} // one token: the queue is not empty
	room  chan struct{} // one token: the queue was taken
	ended chan struct{} // closed when the goroutine has returned

	mu     sync.Mutex
	queue  []schemas.Record
	queued int           // bytes of it
	open   int           // begun, and neither done nor given up
	idle   chan struct{} // made by Drain, closed when nothing is open
}

// queueBytes bounds the queue of a partition; one batch may be larger.
const queueBytes = 2 << 20

// start begins to route a partition until ctx ends; Drain waits for that.
func (r *Router) start(ctx context.Context, a assignment, p consume.Partition) *intake {
	in := newIntake(r, a, p)
	go in.run(ctx)
	return in
}

func newIntake(r *Router, a assignment, p consume.Partition) *intake {
	return &intake{r: r, a: a, part: p, more: make(chan struct{}, 1), room: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Take queues a batch. It blocks while the queue is full, because the registry cannot
// be asked or too much is on its way; the partition is then paused.
func (in *intake) Take(ctx context.Context, recs []schemas.Record) {
	n := 0
	for i := range recs {
		n += len(recs[i].Key) + len(recs[i].Value) + recordOverhead
	}
	for !in.put(recs, n) {
		select {
		case <-in.room:
		case <-ctx.Done():
			in.giveUp(recs)
			return
		}
	}
	offer(in.more)
}

// recordOverhead is what a record takes beside its key and value, about.
const recordOverhead = 400

func (in *intake) put(recs []schemas.Record, n int) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.queued > 0 && in.queued+n > queueBytes {
		return false
	}
	in.queue = append(in.queue, recs...)
	in.queued += n
	return true
}

func (in *intake) takeQueue() []schemas.Record {
	in.mu.Lock()
	recs := in.queue
	in.queue, in.queued = nil, 0
	in.mu.Unlock()
	offer(in.room)
	return recs
}

func offer(token chan<- struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}

func (in *intake) run(ctx context.Context) {
	defer close(in.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case <-in.more:
			in.fanOut(ctx, in.takeQueue())
		}
	}
}

// fanOut routes what was queued before the barrier is asked for.
func (in *intake) fanOut(ctx context.Context, recs []schemas.Record) {
	if !in.r.pass(ctx, in.part) {
		in.giveUp(recs)
		return
	}
	for i := range recs {
		if !in.route(ctx, &recs[i]) {
			in.giveUp(recs[i+1:])
			return
		}
	}
}

func (in *intake) giveUp(recs []schemas.Record) {
	for i := range recs {
		in.a.GiveUp(recs[i].Offset)
	}
}

// route sees one record on its way; false when ctx ended first, and the record is then
// given up.
func (in *intake) route(ctx context.Context, rec *schemas.Record) bool {
	f := in.begin(rec.Offset)
	if IsTombstone(rec) {
		if in.r.cfg.Hooks.Tombstone != nil {
			in.r.cfg.Hooks.Tombstone()
		}
		f.complete()
		return true
	}
	d, err := in.r.cfg.Mapping.Read(*rec)
	if err != nil {
		return f.bury(ctx, rec, d, err)
	}
	endpoints := in.r.cfg.Registry.Match(d.Event.Tenant, d.Event.Type)
	for _, ep := range endpoints {
		one := d
		one.EndpointID = ep.ID
		if !f.write(ctx, &one, func(acked func()) { in.r.cfg.Writer.Deliver(&one, acked) }) {
			return false
		}
	}
	hooks := &in.r.cfg.Hooks
	switch {
	case len(endpoints) > 0 && hooks.Routed != nil:
		hooks.Routed(len(endpoints))
	case len(endpoints) == 0 && hooks.Unmatched != nil:
		hooks.Unmatched()
	}
	f.complete()
	return true
}

// fanout is one record on its way to its endpoints.
type fanout struct {
	in     *intake
	offset int64
	left   atomic.Int64 // writes that are not acknowledged, and one until complete or abandon
}

func (in *intake) begin(offset int64) *fanout {
	in.mu.Lock()
	in.open++
	in.mu.Unlock()
	f := &fanout{in: in, offset: offset}
	f.left.Store(1)
	return f
}

func (f *fanout) bury(ctx context.Context, rec *schemas.Record, d schemas.Delivery, err error) bool {
	f.in.r.tellMalformed(rec, err)
	ok := f.write(ctx, &d, func(acked func()) {
		f.in.r.cfg.Writer.DeadLetter(&d, schemas.ReasonMalformed, acked)
	})
	if ok {
		f.complete()
	}
	return ok
}

// write begins one write as soon as the bound lets it.
func (f *fanout) write(ctx context.Context, d *schemas.Delivery, begin func(acked func())) bool {
	n := sizeOf(d)
	b := f.in.r.inFlight
	if !b.Acquire(ctx, n) {
		f.abandon()
		return false
	}
	f.left.Add(1)
	begin(func() {
		b.Release(n)
		f.complete()
	})
	return true
}

// complete is called once for each write, and once when all were begun.
func (f *fanout) complete() {
	if f.left.Add(-1) == 0 {
		f.in.a.Done(f.offset)
		f.in.end()
	}
}

// abandon drops a record in the middle. What was begun of it may arrive; who reads the
// record next writes the same deliveries again. The count that it does not give back
// keeps their acknowledgements from settling the record.
func (f *fanout) abandon() {
	f.in.a.GiveUp(f.offset)
	f.in.end()
}

func (in *intake) end() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.open--
	if in.open == 0 && in.idle != nil {
		close(in.idle)
		in.idle = nil
	}
}

// Drain drops what was not begun, to be read again by whoever is next, and waits for
// the writes that are on their way.
func (in *intake) Drain(ctx context.Context) {
	select {
	case <-in.ended:
	case <-ctx.Done():
	}
	in.giveUp(in.takeQueue())
	idle := make(chan struct{})
	in.mu.Lock()
	if in.open == 0 {
		close(idle)
	} else {
		in.idle = idle
	}
	in.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// writeOverhead is what a write costs beside its bytes: the delivery, its headers, and
// both again as the client holds them.
const writeOverhead = 3 << 10

// sizeOf is what a delivery on its way takes in memory, about. The payload counts for
// each endpoint, because each is compressed and sent for itself.
func sizeOf(d *schemas.Delivery) int64 {
	n := int64(writeOverhead + len(d.Payload))
	for _, h := range d.Extra {
		n += int64(len(h.Key) + len(h.Value) + 80)
	}
	return n
}
