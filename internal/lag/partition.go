package lag

import (
	"context"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/offsets"
	"github.com/milena-project/milena/retrytopics"
	"github.com/milena-project/milena/schemas"
)

// firstFetch, in bytes: what is left of a partition that is nearly done fits, and is
// counted record by record.
const firstFetch = 64 << 10

// partition finds what is left to do above a commit: how many records, since when the
// first of them has been ready, and in a tier how many of them are overdue.
func (r *Reader) partition(ctx context.Context, topic string, p *Partition, done offsets.Set, now time.Time) error {
	from := p.Start
	if p.Commit != nil && *p.Commit <= p.End {
		from = max(from, *p.Commit)
	}
	done.DropBelow(from)
	p.completed = done.Within(from, p.End)
	p.Exact = true
	if from >= p.End {
		return nil
	}
	head, err := r.kafka.FetchAtOrAfter(ctx, topic, p.Partition, from, firstFetch)
	if err != nil {
		return err
	}
	var first *schemas.Record // that is not done
	whole := head.Next >= p.End
	n := int64(0)
	for i := range head.Records {
		rec := &head.Records[i]
		if rec.Offset >= p.End || done.Has(rec.Offset) {
			continue
		}
		if first == nil {
			first = rec
		}
		n++
	}
	if whole {
		p.Unfinished = n
	} else {
		// Offsets that are no records are told apart only by reading all of it.
		p.Unfinished, p.Exact = p.End-from-p.completed, false
	}
	if p.Unfinished == 0 || first == nil {
		return nil
	}
	if !p.tier {
		oldest := first.Timestamp.UTC()
		p.Oldest = &oldest
		return nil
	}
	return r.overdue(ctx, topic, p, first, head, whole, done, now)
}

// overdue tells what is overdue in a tier from what waits.
func (r *Reader) overdue(ctx context.Context, topic string, p *Partition, first *schemas.Record, head kafka.Fetched, whole bool, done offsets.Set, now time.Time) error {
	switch {
	case !retrytopics.Overdue(first, now):
	case whole:
		for i := range head.Records {
			if rec := &head.Records[i]; rec.Offset < p.End && !done.Has(rec.Offset) && retrytopics.Overdue(rec, now) {
				p.Overdue++
			}
		}
	default:
		boundary, err := retrytopics.FirstWaiting(ctx, r.kafka, topic, p.Partition, first.Offset, p.End, now)
		if err != nil {
			return err
		}
		p.Overdue = boundary - first.Offset - done.Within(first.Offset, boundary)
	}
	p.Waiting = p.Unfinished - p.Overdue
	if p.Overdue > 0 {
		oldest := retrytopics.ReadyAt(first).UTC()
		p.Oldest = &oldest
	}
	return nil
}
