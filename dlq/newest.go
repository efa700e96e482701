package dlq

import (
	"context"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// What became of a death, by the topic of dead letters; values of result.
const (
	deathOpen result = iota + 1
	deathDiscarded
	deathReplayed
)

// newestLife is the life of a delivery that was written last: by a replay, or by a resend,
// which counts as one of the first delivery's. What it came to counts, but for a delivered
// attempt, which counts of any life.
type newestLife struct {
	hash    uint64 // of the delivery id and the generation
	written int64  // unix ms
}

// noteLife notes that a delivery was replayed or sent again, if a record says so.
func (r *resending) noteLife(rec *schemas.Record) {
	of := header(rec.Headers, schemas.HeaderResendOf)
	if of == "" && header(rec.Headers, schemas.HeaderGeneration) == "" {
		return
	}
	d, err := schemas.ParseDelivery(*rec)
	if err != nil || d.Attempt > 0 || d.ResendOf == "" && d.Generation == 0 {
		return
	}
	born := newestLife{lifeHash(d.ID(), d.Generation), rec.Timestamp.UnixMilli()}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case d.ResendOf == "":
		r.noteNewest(d.ID(), born)
	case resends(d.ResendOf, d.EndpointID):
		r.noteNewest(d.ResendOf, born)
	default:
		r.elsewhere.add(lifeHash(d.ResendOf, d.Generation-1)) // a replay to another endpoint goes on counting
	}
}

// noteNewest notes a life of a delivery if it is the newest; the lock is held.
func (r *resending) noteNewest(id string, born newestLife) {
	h := hashOfString(id)
	if have, ok := r.newest[h]; !ok || born.written >= have.written {
		r.newest[h] = born
	}
}

// attempted notes an attempt of a delivery, or of a resend of it; the lock is held. What an
// older life came to is past, unless it was delivered.
func (r *resending) attempted(id string, a *schemas.Attempt, came result) {
	h := hashOfString(id)
	if last, ok := r.newest[h]; ok && came&resultOutcome != resultDelivered && last.hash != lifeHash(a.DeliveryID, a.Generation) {
		return
	}
	r.history.note(h, came, a.Started)
}

// readDeaths looks what became of the letters of the window's deliveries.
func (r *resending) readDeaths(ctx context.Context) error {
	topic := r.store.topic
	from, ends, err := r.onwards(ctx, topic)
	if err != nil {
		return err
	}
	return r.parallel(ctx, topic, from, ends, func(rec *schemas.Record) error {
		id, _, err := schemas.ParseLetterKey(string(rec.Key))
		if err != nil {
			return nil //nolint:nilerr // no letter of Milena's
		}
		_, endpoint, _ := schemas.ParseDeliveryID(id) // it was read with the key
		came := deathOpen
		switch {
		case rec.Value != nil:
		case header(rec.Headers, schemas.HeaderTombstone) == settledReplayed:
			came = deathReplayed
		default:
			came = deathDiscarded
		}
		if rec.Partition == kafka.Partition([]byte(endpoint), int32(len(ends))) {
			came |= resultHome
		}
		r.mu.Lock()
		r.deaths.last(hashOf(rec.Key), came)
		r.mu.Unlock()
		return nil
	})
}

// died counts what has no delivered attempt by what became of its letter, if it has one;
// the lock is held.
func (r *resending) died(gap *Gap, d *schemas.Delivery) bool {
	death := lifeHash(d.ID(), 0)
	if last, ok := r.newest[hashOfString(d.ID())]; ok {
		death = last.hash
	}
	switch r.deaths.of(death) & resultOutcome {
	case deathOpen:
		gap.Dead++
	case deathDiscarded:
		gap.Discarded++
	case deathReplayed:
		if r.elsewhere.has(death) {
			gap.Elsewhere++
		} else {
			gap.Held++ // it was replayed after deliveries were read
		}
	default:
		return false
	}
	return true
}
