package kafka

import (
	"context"
	"errors"
	"slices"

	"github.com/milena-project/milena/schemas"
)

// ReadForwards hands fn the records of [from, to) in chunks of about chunkBytes, in
// offset order. What is asked for is bounded by how much came out of the fetch before,
// because batches may be packed to a tenth. What lies below the log start is skipped.
// It ends at to, at the end of the log, or with fn's first error.
func (r *Reader) ReadForwards(ctx context.Context, topic string, partition int32, from, to int64, chunkBytes int32, fn func([]schemas.Record) error) error {
	ask := min(chunkBytes, firstFetch)
	return forwards(from, to, func(at int64) (Fetched, error) {
		f, err := r.Fetch(ctx, topic, partition, at, ask)
		if size := sizeOf(f.Records); size > 0 {
			ask = min(chunkBytes, max(leastFetch, int32(float64(chunkBytes)*float64(f.Bytes)/float64(size))))
		}
		return f, err
	}, fn)
}

// forwards hands fn what fetch brings of [from, to), one fetch after another.
func forwards(from, to int64, fetch func(at int64) (Fetched, error), fn func([]schemas.Record) error) error {
	for from < to {
		f, err := fetch(from)
		switch {
		case errors.Is(err, ErrOutOfRange) && from < f.LogStart:
			from = f.LogStart
			continue
		case errors.Is(err, ErrOutOfRange):
			return nil // above the end
		case err != nil:
			return err
		}
		next := f.Next // what is kept of f while fn takes its time is fn's affair
		if recs := below(f.Records, to); len(recs) > 0 {
			if err := fn(recs); err != nil {
				return err
			}
		}
		if next == from {
			return nil
		}
		from = next
	}
	return nil
}

// below cuts off what is at or above to.
func below(recs []schemas.Record, to int64) []schemas.Record {
	n := len(recs)
	for n > 0 && recs[n-1].Offset >= to {
		n--
	}
	return recs[:n]
}

// ReadBackwards hands fn the records of [from, to) in chunks of about chunkBytes,
// newest first: the chunks, and the records of each. Kafka reads forwards only, so
// the start of a chunk is guessed by the size of the one before. What is asked for
// is bounded by how much a record took so far, because batches may be packed to a
// tenth, and a chunk begins where its first batch does; so hardly anything is read
// twice. At most two chunks and one fetch are in memory. It ends at from, at the log
// start, or with fn's first error.
func (r *Reader) ReadBackwards(ctx context.Context, topic string, partition int32, from, to int64, chunkBytes int32, fn func([]schemas.Record) error) error {
	b := backwards{reader: r, topic: topic, partition: partition, chunk: chunkBytes}
	step := int64(256)
	for to > from {
		lo := max(from, to-step)
		recs, at, start, err := b.tail(ctx, lo, to)
		if err != nil {
			return err
		}
		from = max(from, start)
		recs = notBelow(recs, from)
		got := sizeOf(recs) // what is kept of them while fn takes its time is fn's affair
		if len(recs) > 0 {
			slices.Reverse(recs)
			if err := fn(recs); err != nil {
				return err
			}
		}
		// What there was room for decides the next step; a gap of a compacted topic
		// doubles it.
		switch {
		case at > lo:
			step = max(1, (to-at)/2)
		case got < int64(chunkBytes)/2:
			step *= 2
		case got > int64(chunkBytes):
			step = max(1, step/2)
		}
		to = at
	}
	return nil
}

// notBelow cuts off what is below from.
func notBelow(recs []schemas.Record, from int64) []schemas.Record {
	n := 0
	for n < len(recs) && recs[n].Offset < from {
		n++
	}
	return recs[n:]
}

// backwards is one reading backwards.
type backwards struct {
	reader    *Reader
	topic     string
	partition int32
	chunk     int32
	density   float64 // bytes of the log that an offset takes; 0: not known yet
}

// firstFetch is asked for while the density is not known, and leastFetch always.
const (
	firstFetch = 64 << 10
	leastFetch = 16 << 10
)

// ask is how many bytes to ask for, for n offsets.
func (b *backwards) ask(n int64) int32 {
	if b.density == 0 {
		return min(b.chunk, firstFetch)
	}
	return int32(min(float64(b.chunk), b.density*float64(n)*1.25+1024))
}

// tail is what stands in [at, to), where at is lo, or below it the start of its
// batch, or, when all that would be more than two chunks, as near to lo as they
// reach. start is the log start.
func (b *backwards) tail(ctx context.Context, lo, to int64) (recs []schemas.Record, at, start int64, err error) {
	at = lo
	for next := lo; next < to; {
		f, err := b.reader.fetchFrom(ctx, b.topic, b.partition, next, b.ask(to-next), fetchHow{whole: next == lo})
		if errors.Is(err, ErrOutOfRange) {
			start = max(start, f.LogStart)
			if next >= f.LogStart {
				break // above the end
			}
			next = f.LogStart // if that is at or above to, there is nothing
			continue
		}
		if err != nil {
			return nil, 0, 0, err
		}
		start = max(start, f.LogStart)
		at = min(at, f.from)
		if n := f.Next - f.from; n > 0 && f.Bytes > 0 {
			b.density = float64(f.Bytes) / float64(n)
		}
		add := below(f.Records, to)
		if len(recs) > 0 && sizeOf(recs)+sizeOf(add) > 2*int64(b.chunk) {
			recs, at = nil, next // too much: keep the end, the rest comes in the next turn
		}
		recs = append(recs, add...)
		if f.Next == next {
			break
		}
		next = f.Next
	}
	return recs, at, start, nil
}

// sizeOf is what records take in memory, about.
func sizeOf(recs []schemas.Record) int64 {
	n := int64(0)
	for i := range recs {
		n += int64(len(recs[i].Key) + len(recs[i].Value) + 100)
		for _, h := range recs[i].Headers {
			n += int64(len(h.Key) + len(h.Value) + 40)
		}
	}
	return n
}

// Last returns the newest n records of a topic over all its partitions, oldest first by
// their timestamps. At most n records of each partition are in memory.
func (r *Reader) Last(ctx context.Context, topic string, n int) ([]schemas.Record, error) {
	ends, err := r.Ends(ctx, topic)
	if err != nil {
		return nil, err
	}
	var all []schemas.Record
	for p, end := range ends {
		got := 0
		err := r.ReadBackwards(ctx, topic, int32(p), 0, end, lastChunk, func(recs []schemas.Record) error {
			recs = recs[:min(len(recs), n-got)]
			got += len(recs)
			all = append(all, recs...)
			if got == n {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b schemas.Record) int { return b.Timestamp.Compare(a.Timestamp) })
	all = all[:min(len(all), n)]
	slices.Reverse(all)
	return all, nil
}

const lastChunk = 256 << 10 // bytes

var errEnough = errors.New("enough")
