package dispatcher

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/milena-project/milena/schemas"
)

// This file is the only place with effects. An attempt's offset is done when every
// write that its outcome asks for is acknowledged, and not before:
//
//	a crash before the writes: the next owner makes the attempt again (at least once);
//	between two of them: it makes the attempt again, and a parked or buried copy is
//	    dropped as a duplicate by whoever remembers the attempt;
//	after them and before the commit: the same.
//
// A write that fails is repeated by the writer for ever. The POST never is.

// settlement waits for the acks of one delivery's writes.
type settlement struct {
	it      *item
	pending atomic.Int32
}

func (it *item) settlement(writes int32) *settlement {
	s := &settlement{it: it}
	s.pending.Store(writes)
	return s
}

func (s *settlement) acked() {
	if s.pending.Add(-1) != 0 {
		return
	}
	it := s.it
	if it.held != nil {
		it.part.d.lanes.settledHeld(it)
		return
	}
	it.part.src.Done(it.offset)
	it.part.d.lanes.acked(it.part)
}

// settle writes what an attempt came to.
func (d *Dispatcher) settle(it *item, r *result, v verdict, notice *schemas.Notice) {
	if notice != nil {
		// Not awaited: its id makes a second writing harmless, and the endpoint's
		// health remembers it only when it is acknowledged.
		l := it.lane
		d.Notifier.Notify(notice, func() { d.lanes.noticed(l, notice) })
	}
	if v.outcome == schemas.OutcomeDelivered {
		if d.Hooks.Delivered != nil && !it.d.Enqueued.IsZero() {
			d.Hooks.Delivered(max(0, r.started.Add(r.duration).Sub(it.d.Enqueued)), it.d.Attempt == 0)
		}
		d.log(d.record(it, r, v, time.Time{}), it.settlement(1).acked)
		return
	}
	del := &it.d
	del.LastStatus, del.ErrorClass = r.status, r.class
	del.Error = schemas.CleanError(r.text)
	if del.FirstAttempt.IsZero() {
		del.FirstAttempt = r.started
	}
	del.Attempt++
	if v.outcome == schemas.OutcomeDead {
		d.bury(it, v.reason, r)
		return
	}
	planned := *del
	if !d.clock.trusted() {
		planned.Enqueued = time.Time{} // of no known age
	}
	due, dead := it.ep.Schedule.Next(&planned, time.Now(), r.retryAfter)
	if dead != "" {
		d.bury(it, dead, r)
		return
	}
	done := it.settlement(2)
	a := d.record(it, r, v, due)
	del.NotBefore, del.Released = due, time.Time{}
	d.Parker.Park(del, done.acked)
	d.log(a, done.acked)
}

// bury writes a dead letter and what the delivery log says of it. r is nil where
// no attempt was made.
func (d *Dispatcher) bury(it *item, reason schemas.Reason, r *result) {
	done := it.settlement(2)
	a := d.record(it, r, verdict{outcome: schemas.OutcomeDead, reason: reason}, time.Time{})
	letter := schemas.NewLetter(it.d, reason, time.Now())
	d.DeadLetters.Bury(&letter, done.acked)
	d.log(a, done.acked)
}

// log writes an entry of record's, which is nobody's after it.
func (d *Dispatcher) log(a *schemas.Attempt, acked func()) {
	d.AttemptLog.LogAttempt(a, acked)
	attempts.Put(a)
}

// attempts are entries to use again: one is half a kilobyte, and there is one for
// every POST.
var attempts = sync.Pool{New: func() any { return new(schemas.Attempt) }}

// record is the delivery log's entry. it.d.Attempt counts this attempt already
// where it failed; next is its next try, zero where there is none.
func (d *Dispatcher) record(it *item, r *result, v verdict, next time.Time) *schemas.Attempt {
	del := &it.d
	deliveryID, messageID := it.names()
	a := attempts.Get().(*schemas.Attempt) //nolint:forcetypeassert // the pool holds nothing else
	*a = schemas.Attempt{
		DeliveryID: deliveryID, MessageID: messageID, EndpointID: del.EndpointID, Tenant: del.Event.Tenant,
		EventID: del.Event.ID, Source: del.Event.Source, Type: del.Event.Type, Subject: del.Event.Subject,
		Outcome: v.outcome, Reason: v.reason, Number: del.Attempt, Generation: del.Generation,
		Run: del.Run, ResendOf: del.ResendOf, Origin: strings.TrimSuffix(deliveryID, "."+del.EndpointID),
		NotBefore: del.NotBefore, NextTry: next, Bytes: len(del.Payload), Started: time.Now(), Error: del.Error,
	}
	if r != nil {
		a.URL = it.ep.LogURL
		if r.delivered() {
			a.Number++
		}
		a.Started, a.Duration, a.Delay = r.started, milliseconds(r.duration), milliseconds(r.delay(it.ready))
		a.Status, a.ErrorClass, a.Error = r.status, r.class, schemas.CleanError(r.text)
		a.ResponseHeaders, a.ResponseBody, a.ResponseTruncated = r.headers, r.body, r.truncated
	}
	if d.Hooks.Attempted != nil {
		d.Hooks.Attempted(a)
	}
	return a
}

// delay is how long a delivery that was ready waited for its first byte.
func (r *result) delay(ready time.Time) time.Duration {
	first := r.firstByte
	if first.IsZero() {
		first = r.started
	}
	return max(0, first.Sub(ready))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
