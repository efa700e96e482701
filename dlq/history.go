package dlq

import (
	"context"
	"encoding/json"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// result is what the attempts of a delivery have come to; zero: it has none.
type result uint64

const (
	resultRetrying result = iota + 1
	resultDead
	resultDelivered

	resultOutcome result = 3
	resultHome    result = 4 // told by the partition that is its endpoint's now
	resultBits           = resultOutcome | resultHome

	hashBits = ^uint64(resultBits)
)

func resultOf(o schemas.Outcome) result {
	switch o {
	case schemas.OutcomeRetry:
		return resultRetrying
	case schemas.OutcomeDead:
		return resultDead
	case schemas.OutcomeDelivered:
		return resultDelivered
	}
	return 0 // interrupted or a duplicate: it says nothing
}

// results is a map of deliveries' hashes as dense as seen: three bits of a hash make room
// for the fate. Two of five million have the same with a probability of five in a million.
type results struct {
	tables [256]table
	former map[uint64]time.Time // when the attempt was made that a former partition tells of, where it was not delivered
}

func (r *results) of(h uint64) result {
	t := &r.tables[h>>56]
	if len(t.slots) == 0 {
		return 0
	}
	return result(*t.find(h, hashBits)) & resultBits
}

// note takes in one attempt, those of a partition in the order of the log. A delivery
// that was delivered once is; else the last attempt counts, and of two partitions, because
// their number was raised meanwhile, that of the endpoint's of now, or else the later one:
// who has read first says nothing.
func (r *results) note(h uint64, came result, made time.Time) {
	was := r.of(h)
	switch {
	case was&resultOutcome == resultDelivered:
		return
	case came&resultOutcome == resultDelivered:
	case was&resultHome > came&resultHome, came&resultHome == 0 && made.Before(r.former[h&hashBits]):
		return
	case came&resultHome == 0:
		if r.former == nil {
			r.former = map[uint64]time.Time{}
		}
		r.former[h&hashBits] = made
	}
	r.set(h, came)
}

// last takes in what is no attempt: the last counts, and of two partitions that of the
// endpoint's of now.
func (r *results) last(h uint64, came result) {
	if r.of(h)&resultHome <= came&resultHome {
		r.set(h, came)
	}
}

func (r *results) set(h uint64, came result) {
	t := &r.tables[h>>56]
	t.room(hashBits)
	slot := t.find(h, hashBits)
	if *slot == 0 {
		t.used++
	}
	*slot = h&hashBits | uint64(came)
}

// readHistory reads what the attempts say of the window's deliveries, which can only
// have been attempted after they were written.
func (r *resending) readHistory(ctx context.Context) error {
	topic := r.store.names.Attempts()
	from, ends, err := r.onwards(ctx, topic)
	if err != nil {
		return err
	}
	if keep, err := r.store.retention(ctx, topic); keep > 0 || err != nil { // of which nothing is known, all may be gone
		r.expired = time.Now().Add(-keep)
	}
	// Attempts are kept for less time than deliveries: without this all that is older
	// would look as if it had never been attempted.
	if r.back, err = r.store.backTo(ctx, topic); err != nil {
		return explain(err, topic, "Read")
	}
	return r.parallel(ctx, topic, from, ends, func(rec *schemas.Record) error {
		var a schemas.Attempt
		if json.Unmarshal(rec.Value, &a) != nil || !oneOf(r.past.Endpoints, a.EndpointID) {
			return nil
		}
		came := resultOf(a.Outcome)
		if came == 0 {
			return nil
		}
		if rec.Partition == kafka.Partition([]byte(a.EndpointID), int32(len(ends))) {
			came |= resultHome
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.attempted(a.DeliveryID, &a, came)
		if resends(a.ResendOf, a.EndpointID) { // one that was delivered has delivered its event
			r.attempted(a.ResendOf, &a, came)
		}
		return nil
	})
}

// resends reports whether what an endpoint gets is another delivery of its own again. A
// replay to another endpoint is none: the first one has not had it.
func resends(of, endpoint string) bool {
	_, first, err := schemas.ParseDeliveryID(of)
	return err == nil && first == endpoint
}

// goesBackTo is since when all attempts of a delivery would be known: since the log
// begins in the partition that is its endpoint's now, and in that which was when it was
// written, before the partitions were raised. Of an event in a source nobody knows which
// that was: of each that it can have been, what retention takes by itself may be gone.
func (r *resending) goesBackTo(d *schemas.Delivery, rec *schemas.Record) time.Time {
	ever := kafka.PartitionsEver([]byte(d.EndpointID), int32(len(r.back)))
	begins := r.back[ever[0]]
	for _, p := range ever[1:] {
		then := r.back[p]
		if rec.Topic != r.store.names.Deliveries() {
			if then.After(r.expired) {
				then = r.expired // a quiet partition may begin later, and have lost nothing since
			}
		} else if rec.Partition != p && !r.moved.has(hashOfString(d.ID())) {
			continue
		}
		if then.After(begins) {
			begins = then
		}
	}
	return begins
}
