package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/milena-project/milena/schemas"
)

// Coverage says how much of the topic a reading has seen. It is complete unless the
// context ended first; then what was found is true, but not all.
type Coverage struct {
	Complete   bool
	Partitions int       // read to their end
	Of         int       // partitions that can hold what is wanted
	BackTo     time.Time // everything newer than this was seen; zero if Complete, or while a partition is not begun
	Letters    int64     // that were read and not settled
	Foreign    int64     // records that are no dead letters: Milena did not write them
}

// scan is one reading of a partition backwards.
type scan struct {
	store  *Store
	filter *Filter
	part   int32
	below  int64 // letters at or above it are not looked at; tombstones are
	seen   seen
	visit  func(*Entry) error
	passed func(context.Context, time.Time) // tells how far back the reading has come, and may block; may be nil
	turn   *turn                            // has it while a chunk is in memory

	back    time.Time // running minimum of the times of records
	cover   Coverage
	scratch Entry
}

// clockMargin is how far the clocks of dispatchers may be behind those of brokers.
const clockMargin = 10 * time.Minute

// lowest are the offsets, by partition, below which nothing can be selected: the time
// index says which letters cannot have died after since. A letter is written after its
// death, so the index errs to the safe side, but for clocks; hence the margin.
func (s *Store) lowest(ctx context.Context, f *Filter) ([]int64, error) {
	if f.Since.IsZero() {
		return s.reader.Starts(ctx, s.topic)
	}
	return s.reader.After(ctx, s.topic, f.Since.Add(-clockMargin))
}

// Which partitions a reading takes at the same time: all, so that what is read when it
// is ended early is what is newest; or some, so that only their keys are in memory.
const (
	inStep  = true
	inWaves = false
)

// visit calls the visitor of its partition for each letter that f selects, its limit
// included. A nil snapshot is the end of now. An Entry is valid during the call, and
// has its payload only where there is no limit.
func (s *Store) visit(ctx context.Context, f *Filter, below Snapshot, step bool, visitor func(p int32) func(*Entry) error) (Coverage, error) {
	if f.Limit == 0 {
		return s.each(ctx, f, below, step, visitor)
	}
	visitors := map[int32]func(*Entry) error{}
	return s.newest(ctx, f, below, func(e *Entry) error {
		v := visitors[e.Partition]
		if v == nil {
			v = visitor(e.Partition)
			visitors[e.Partition] = v
		}
		return v(e)
	})
}

// each reads the partitions, in step or in waves, newest first, and calls their
// visitors, each from one goroutine; the limit is ignored.
func (s *Store) each(ctx context.Context, f *Filter, below Snapshot, step bool, visitor func(p int32) func(*Entry) error) (Coverage, error) {
	scans, from, ends, err := s.scans(ctx, f, below)
	if err != nil {
		return Coverage{}, err
	}
	group, gctx := errgroup.WithContext(ctx)
	if !step {
		group.SetLimit(width(len(scans)))
	}
	for _, sc := range scans {
		group.Go(func() error {
			sc.visit = visitor(sc.part)
			return sc.run(gctx, from[sc.part], ends[sc.part], chunkFor(cap(sc.turn.of)))
		})
	}
	err = group.Wait()
	return total(scans), s.partial(ctx, err)
}

// partial turns the end of the context into no error: Coverage tells of it.
func (s *Store) partial(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrPartial, context.Cause(ctx))
	}
	return explain(err, s.topic, "Read")
}

// ErrPartial: the reading was ended before it was complete. What came with it is
// true as far as Coverage says.
var ErrPartial = errors.New("the reading was ended early")

func (s *Store) scans(ctx context.Context, f *Filter, below Snapshot) (scans []*scan, from, ends []int64, err error) {
	ends, err = s.reader.Ends(ctx, s.topic)
	if err == nil {
		from, err = s.lowest(ctx, f)
	}
	if err != nil {
		return nil, nil, nil, explain(err, s.topic, "Read")
	}
	of := int64(0)
	// Not by IDs: an event's id may look like that of another endpoint's delivery.
	for _, p := range partitionsOf(f.Endpoints, int32(len(ends))) {
		of += ends[p] - from[p]
		sc := &scan{store: s, filter: f, part: p, below: ends[p]}
		if below != nil {
			sc.below = below[p] // a partition that is younger than the snapshot has 0
		}
		scans = append(scans, sc)
	}
	turns := make(chan struct{}, width(len(scans)))
	for _, sc := range scans {
		sc.turn = &turn{of: turns}
	}
	s.reads(of)
	return scans, from, ends, nil
}

func total(scans []*scan) Coverage {
	c := Coverage{Of: len(scans)}
	begun := true // all that are not complete
	for _, sc := range scans {
		c.Letters += sc.cover.Letters
		c.Foreign += sc.cover.Foreign
		if sc.cover.Complete {
			c.Partitions++
			continue
		}
		begun = begun && !sc.back.IsZero()
		if sc.back.After(c.BackTo) {
			c.BackTo = sc.back
		}
	}
	if !begun {
		c.BackTo = time.Time{}
	}
	c.Complete = c.Partitions == c.Of
	return c
}

func (sc *scan) run(ctx context.Context, from, to int64, chunk int32) error {
	if err := sc.turn.begin(ctx); err != nil {
		return err
	}
	defer sc.turn.end()
	at := to
	err := sc.store.reader.ReadBackwards(ctx, sc.store.topic, sc.part, from, to, chunk, func(recs []schemas.Record) error {
		for i := range recs {
			if err := sc.record(&recs[i]); err != nil {
				return err
			}
		}
		last := recs[len(recs)-1].Offset
		sc.store.done.Add(at - last)
		at = last
		return sc.next(ctx)
	})
	sc.cover.Complete = err == nil
	sc.seen = seen{} // given back before the next partition is begun
	return err
}

// next lets others have their turn between two chunks, while nothing of this partition
// is in memory but its keys.
func (sc *scan) next(ctx context.Context) error {
	sc.scratch = Entry{}
	sc.turn.end()
	if sc.passed != nil {
		sc.passed(ctx, sc.back)
	}
	return sc.turn.begin(ctx)
}

func (sc *scan) record(rec *schemas.Record) error {
	if sc.back.IsZero() || rec.Timestamp.Before(sc.back) {
		sc.back = rec.Timestamp
	}
	if rec.Value == nil {
		sc.seen.add(hashOf(rec.Key))
		return nil
	}
	if rec.Offset >= sc.below || !sc.seen.add(hashOf(rec.Key)) {
		return nil
	}
	e := &sc.scratch
	if err := e.read(rec); err != nil {
		sc.cover.Foreign++
		return nil
	}
	sc.cover.Letters++
	if !sc.filter.Match(&e.Letter, e.Written) {
		return nil
	}
	return sc.visit(e)
}

// read fills an entry from a record, whose bytes it shares.
func (e *Entry) read(rec *schemas.Record) error {
	if err := schemas.ReadLetter(rec, &e.Letter); err != nil {
		return err
	}
	e.Written, e.Size, e.SameWay, e.rec = rec.Timestamp, len(e.Payload), diedTheSameWay(&e.Letter), *rec
	return nil
}

// keep makes an entry that shares nothing with what was fetched: the payload and the
// producer's headers are dropped.
func (e *Entry) keep() Entry {
	k := *e
	k.Payload, k.Extra = nil, nil
	k.rec = schemas.Record{TopicID: e.rec.TopicID, Partition: e.rec.Partition, Offset: e.rec.Offset}
	return k
}
