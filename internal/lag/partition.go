package lag

import (
	"context"
	"errors"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/offsets"
	"github.com/milena-project/milena/schemas"
)

const (
	firstFetch = 64 << 10 // bytes: what is left of a partition that is nearly done fits, and is counted record by record
	probeFetch = 1        // byte: one batch
)

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
	head, err := r.fetch(ctx, topic, p.Partition, from, firstFetch)
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

// overdue tells what is overdue in a tier from what waits. All records of a tier wait
// for the same time, so they are ready in the order of the log but for what their
// movers' clocks differ: the boundary is searched for.
func (r *Reader) overdue(ctx context.Context, topic string, p *Partition, first *schemas.Record, head kafka.Fetched, whole bool, done offsets.Set, now time.Time) error {
	late := func(rec *schemas.Record) bool { return now.Sub(readyAt(rec)) > behindAfter }
	switch {
	case !late(first):
	case whole:
		for i := range head.Records {
			if rec := &head.Records[i]; rec.Offset < p.End && !done.Has(rec.Offset) && late(rec) {
				p.Overdue++
			}
		}
	default:
		boundary, err := r.search(ctx, topic, p.Partition, first.Offset, p.End, late)
		if err != nil {
			return err
		}
		p.Overdue = boundary - first.Offset - done.Within(first.Offset, boundary)
	}
	p.Waiting = p.Unfinished - p.Overdue
	if p.Overdue > 0 {
		oldest := readyAt(first).UTC()
		p.Oldest = &oldest
	}
	return nil
}

// search returns the first offset in (low, high) whose record is not late; high where
// all are. The record at low is late.
func (r *Reader) search(ctx context.Context, topic string, partition int32, low, high int64, late func(*schemas.Record) bool) (int64, error) {
	low++
	for low < high {
		mid := low + (high-low)/2
		f, err := r.fetch(ctx, topic, partition, mid, probeFetch)
		if err != nil {
			return 0, err
		}
		if len(f.Records) == 0 || f.Records[0].Offset >= high { // nothing but gaps from mid on
			high = mid
			continue
		}
		if !late(&f.Records[0]) {
			high = mid
			continue
		}
		for i := range f.Records { // the batch is here anyway
			rec := &f.Records[i]
			if rec.Offset >= high {
				break
			}
			if !late(rec) {
				return rec.Offset, nil
			}
			low = rec.Offset + 1
		}
	}
	return low, nil
}

// readyAt is when a record of a tier may move on; what says nothing could at once.
func readyAt(rec *schemas.Record) time.Time {
	if d, _ := schemas.ParseDelivery(*rec); !d.HopUntil.IsZero() {
		return d.HopUntil
	}
	return rec.Timestamp
}

// fetch is a fetch that takes retention in its stride: what was there a moment ago
// may be gone.
func (r *Reader) fetch(ctx context.Context, topic string, partition int32, from int64, bytes int32) (kafka.Fetched, error) {
	f, err := r.kafka.Fetch(ctx, topic, partition, from, bytes)
	if errors.Is(err, kafka.ErrOutOfRange) && from < f.LogStart {
		f, err = r.kafka.Fetch(ctx, topic, partition, f.LogStart, bytes)
	}
	if errors.Is(err, kafka.ErrOutOfRange) {
		return kafka.Fetched{Next: from}, nil
	}
	return f, err
}
