package dlq

import (
	"context"
	"strings"
	"time"

	"github.com/milena-project/milena/internal/health"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// Gap says, for one endpoint, what became of the deliveries of a window: of each what its
// newest life came to, the first one, a replay or a resend. The others add up to Deliveries.
type Gap struct {
	Deliveries int64 `json:"deliveries"`
	Delivered  int64 `json:"delivered"`
	Dead       int64 `json:"dead"`      // a letter that milena dlq replay finds
	Discarded  int64 `json:"discarded"` // dead, and somebody wanted it so
	Elsewhere  int64 `json:"elsewhere"` // dead, and replayed to another endpoint: its own has not had it
	Gone       int64 `json:"gone"`      // dead, and the topic has its letter no longer: retention; milena resend --delivery may find it
	Retrying   int64 `json:"retrying"`  // it failed and has a next try
	Held       int64 `json:"held"`      // no attempt, but on its way: not read yet, in a tier, resent, or its endpoint has work on hold
	Missing    int64 `json:"missing"`   // no attempt, and nothing known that would lead to one
	Unknown    int64 `json:"unknown"`   // no attempt, but the delivery log does not go back so far
}

// readTraces looks where the deliveries of a window may be, and what became of them. Each
// question comes before that of the next step on a delivery's way, so that one which
// moves on meanwhile is seen twice and not missed: what was committed has been written to
// a tier, to hold or to the delivery log before.
func (r *resending) readTraces(ctx context.Context, from []int64) error {
	committed, err := r.store.commits(ctx, "dispatcher")
	if err != nil {
		return err
	}
	r.unread = committed[r.store.names.Deliveries()]
	if err := r.readTiers(ctx); err != nil {
		return err
	}
	if err := r.readHeld(ctx); err != nil {
		return err
	}
	if err := r.readComing(ctx, from); err != nil {
		return err
	}
	if err := r.readHistory(ctx); err != nil {
		return err
	}
	return r.readDeaths(ctx)
}

// missing puts a delivery into the gap report; the lock is held. open says that its
// record has not been committed by who reads it, so that it is still to come.
func (r *resending) missing(d *schemas.Delivery, rec *schemas.Record, open bool) bool {
	gap := r.gaps[d.EndpointID]
	if gap == nil {
		gap = &Gap{}
		r.gaps[d.EndpointID] = gap
	}
	gap.Deliveries++
	h := hashOfString(d.ID())
	outcome := r.history.of(h) & resultOutcome
	switch {
	case outcome == resultDelivered:
		gap.Delivered++
	case outcome == resultRetrying:
		gap.Retrying++
	case r.died(gap, d):
	case outcome == resultDead && (open || r.coming.has(h)): // its letter is being written
		gap.Dead++
	case outcome == resultDead:
		gap.Gone++
	case open || r.held[d.EndpointID] || r.coming.has(h) || d.NotBefore.After(time.Now()):
		gap.Held++
	case rec.Timestamp.Before(r.goesBackTo(d, rec)):
		gap.Unknown++
	default:
		gap.Missing++
		return true
	}
	return false
}

// readHeld looks which endpoints have work on hold, in any partition: what has no attempt
// there may only be waiting.
func (r *resending) readHeld(ctx context.Context) error {
	var trouble health.Topic
	err := r.store.readHealth(ctx, &trouble, r.past.endpoints()...)
	r.held = map[string]bool{}
	for id, h := range trouble.Endpoints() {
		r.held[id] = h.Next != nil
	}
	return err
}

// readTiers looks what the releaser has yet to move on.
func (r *resending) readTiers(ctx context.Context) error {
	committed, err := r.store.commits(ctx, "releaser")
	if err != nil {
		return err
	}
	adm, err := r.store.cfg.NewAdmin()
	if err != nil {
		return err
	}
	defer adm.Close()
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		return err
	}
	for _, tier := range topics.Names() {
		if !strings.HasPrefix(tier, r.store.names.RetryPrefix()) {
			continue
		}
		ends, err := r.store.reader.Ends(ctx, tier)
		if err != nil {
			return explain(err, tier, "Read")
		}
		from := make([]int64, len(ends))
		for p, c := range committed[tier] {
			if int(p) < len(from) {
				from[p] = c.Offset
			}
		}
		err = r.store.forwards(ctx, tier, every(int32(len(ends))), from, ends, nil, func(rec *schemas.Record) error {
			r.comes(rec)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readComing looks what stands in deliveries that nobody has read yet, and what was sent
// again: until that has an attempt, another resend would be a repeat.
func (r *resending) readComing(ctx context.Context, from []int64) error {
	topic := r.store.names.Deliveries()
	ends, err := r.store.reader.Ends(ctx, topic)
	if err != nil {
		return explain(err, topic, "Read")
	}
	return r.parallel(ctx, topic, from, ends, func(rec *schemas.Record) error {
		if of := header(rec.Headers, schemas.HeaderResendOf); resends(of, string(rec.Key)) {
			r.mu.Lock()
			r.coming.add(hashOfString(of))
			r.mu.Unlock()
		}
		r.noteLife(rec)
		if header(rec.Headers, schemas.HeaderForwards) != "" && rec.Partition != kafka.Partition(rec.Key, int32(len(ends))) {
			r.moves(rec)
		}
		if rec.Offset >= r.unread[rec.Partition].Offset {
			r.comes(rec)
		}
		return nil
	})
}

// moves notes that a delivery was forwarded to a partition that is its endpoint's no longer.
func (r *resending) moves(rec *schemas.Record) {
	if d, err := schemas.ParseDelivery(*rec); err == nil {
		r.mu.Lock()
		r.moved.add(hashOfString(d.ID()))
		r.mu.Unlock()
	}
}

// comes notes that a record of a delivery has yet to be read.
func (r *resending) comes(rec *schemas.Record) {
	d, err := schemas.ParseDelivery(*rec)
	if err != nil || !oneOf(r.past.Endpoints, d.EndpointID) {
		return
	}
	r.mu.Lock()
	r.coming.add(hashOfString(d.ID()))
	r.mu.Unlock()
}
