package retrytopics

import (
	"context"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// OverdueAfter is what a record may take from its readiness to its commit: the time in
// memory, a fetch, a write and a commit interval. What takes longer is overdue.
const OverdueAfter = Near + 2*time.Second

// ReadyAt is when a record of a tier may move on, by the clock of whoever wrote it there;
// what says nothing could at once.
func ReadyAt(rec *schemas.Record) time.Time {
	if d, _ := schemas.ParseDelivery(*rec); !d.HopUntil.IsZero() {
		return d.HopUntil
	}
	return rec.Timestamp
}

// Overdue reports whether a record of a tier should have moved on.
func Overdue(rec *schemas.Record, now time.Time) bool { return now.Sub(ReadyAt(rec)) > OverdueAfter }

// probeFetch is one byte: one batch.
const probeFetch = 1

// FirstWaiting returns the first offset in [low, high) of a tier's partition whose record
// is not overdue; high where all are, low where there is none. All records of a tier wait
// for the same time, so they are ready in the order of the log but for what their
// writers' clocks differ: the place is searched for, by at most about twenty fetches of a
// million records, and by one where nothing is overdue.
func FirstWaiting(ctx context.Context, r *kafka.Reader, topic string, partition int32, low, high int64, now time.Time) (int64, error) {
	for probe := low; low < high; probe = low + (high-low)/2 {
		f, err := r.FetchAtOrAfter(ctx, topic, partition, probe, probeFetch)
		if err != nil {
			return 0, err
		}
		if len(f.Records) == 0 || f.Records[0].Offset >= high || !Overdue(&f.Records[0], now) {
			high = probe // also where there is nothing but gaps from there on
			continue
		}
		for i := range f.Records { // the batch is here anyway
			rec := &f.Records[i]
			if rec.Offset >= high {
				break
			}
			if !Overdue(rec, now) {
				return rec.Offset, nil
			}
			low = rec.Offset + 1
		}
	}
	return low, nil
}
