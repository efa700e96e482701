package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Take reads records of the assignment in log order. It blocks while the partition
// may not take more in; no record stops it. What it has not accepted when ctx or
// the assignment ends is given up: nobody is at work on it.
func (p *Partition) Take(ctx context.Context, records []schemas.Record) {
	for i := range records {
		if !p.awaitRoom(ctx) {
			for _, rest := range records[i:] {
				p.src.GiveUp(rest.Offset)
			}
			return
		}
		p.take(&records[i])
	}
}

func (p *Partition) take(rec *schemas.Record) {
	d := p.d
	it := &item{part: p, offset: rec.Offset}
	var err error
	it.d, err = schemas.ParseDelivery(*rec)
	if err != nil {
		p.takeMalformed(it, rec, err)
		return
	}
	now := time.Now()
	if d.Placement.PartitionOf(it.d.EndpointID) != p.number {
		p.misrouted(it, now)
		return
	}
	it.d.Own() // one that waits, or hangs, must not keep the whole fetch that it came in
	it.key = d.duplicates.key(&it.d)
	p.inHand.Store(it)
	defer p.inHand.Store(nil)
	if !d.duplicates.claim(it.key) {
		p.begin()
		p.duplicate(it)
		return
	}
	if it.d.Released.IsZero() && it.d.NotBefore.After(now) {
		p.schedule(it, now)
		return
	}
	it.ready = readySince(&it.d, rec.Timestamp, now)
	ep := d.Endpoints.Endpoint(it.d.EndpointID, d.lanes.known(it.d.EndpointID))
	d.lanes.offer(it, ep)
}

// readySince is when a delivery could have been sent: when it was appended, or due
// if that was later. A clock that is ahead of ours does not make it negative.
func readySince(d *schemas.Delivery, appended, now time.Time) time.Time {
	ready := appended
	if d.NotBefore.After(ready) {
		ready = d.NotBefore
	}
	if ready.After(now) {
		return now
	}
	return ready
}

// takeMalformed buries an unreadable record with its bytes; the partition goes on.
func (p *Partition) takeMalformed(it *item, rec *schemas.Record, err error) {
	var malformed *schemas.MalformedError
	if !errors.As(err, &malformed) {
		p.d.Logger.Error("record cannot be read", "partition", p.number, "offset", rec.Offset, "err", err)
	}
	it.key = p.d.duplicates.key(&it.d)
	it.d.Error = schemas.CleanError(err.Error())
	p.begin()
	p.d.bury(it, schemas.ReasonMalformed, nil)
}

// misrouted sends a record on to the partition of its endpoint. A second forward
// means that the count of partitions is changing: it waits before it is tried again.
func (p *Partition) misrouted(it *item, now time.Time) {
	d := p.d
	p.begin()
	it.d.Forwards++
	again := it.d.Forwards > 1
	if d.Hooks.Misrouted != nil {
		d.Hooks.Misrouted(again)
	}
	done := it.settlement(1)
	if again {
		if wait := now.Add(misroutedWait); wait.After(it.d.NotBefore) { // else it is scheduled for later than that
			it.d.NotBefore = wait
		}
		d.Parker.Park(&it.d, done.acked)
		return
	}
	d.Forwarder.Forward(&it.d, done.acked)
}

// misroutedWait is how long a record waits that was forwarded once already.
const misroutedWait = 10 * time.Second

// duplicate drops a copy, which counts as work under way already, and says so in
// the delivery log.
func (p *Partition) duplicate(it *item) {
	if p.d.Hooks.Duplicate != nil {
		p.d.Hooks.Duplicate()
	}
	a := p.d.record(it, nil, verdict{outcome: schemas.OutcomeDuplicate}, time.Time{})
	p.d.log(a, it.settlement(1).acked)
}

// schedule parks a delivery that its producer asked to be sent later.
func (p *Partition) schedule(it *item, now time.Time) {
	d := p.d
	p.begin()
	if it.d.NotBefore.Sub(now) > d.cfg.MaxAge && d.clock.trusted() {
		it.d.Error = "milena-not-before " + it.d.NotBefore.UTC().Format(time.RFC3339) + " is later than the max age of " + d.cfg.MaxAge.String() + " allows"
		d.bury(it, schemas.ReasonExpired, nil)
		return
	}
	d.duplicates.forget(it.key) // it comes back as the same attempt
	d.Parker.Park(&it.d, it.settlement(1).acked)
}
