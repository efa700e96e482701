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

// intake is one source partition for as long as it is assigned.
type intake struct {
	r    *Router
	a    assignment
	part consume.Partition

	mu   sync.Mutex
	open int           // taken, and neither done nor given up
	idle chan struct{} // made by Drain, closed when nothing is open
}

func (r *Router) start(a assignment, p consume.Partition) *intake {
	return &intake{r: r, a: a, part: p}
}

// Take fans out one batch. It blocks while the registry cannot be asked and while too
// much is on its way; the partition is then paused.
func (in *intake) Take(ctx context.Context, recs []schemas.Record) {
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
	if !b.acquire(ctx, n) {
		f.abandon()
		return false
	}
	f.left.Add(1)
	begin(func() {
		b.release(n)
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

// Drain waits for the writes that are on their way.
func (in *intake) Drain(ctx context.Context) {
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
