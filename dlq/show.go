package dlq

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// ErrNotFound: no dead letter has that id.
var ErrNotFound = errors.New("no such dead letter")

// Death is one death of a delivery, with payload and headers, and what became of it.
type Death struct {
	Entry
	Settled string    // replayed or discarded; empty: the letter is open
	Run     string    // that settled it
	At      time.Time // when
}

// Show finds all deaths of a delivery that the topic still has, the settled ones too,
// the first one first. id may be a delivery id, a letter's key, or the message or
// event id of an open letter, which may belong to several deliveries. ErrNotFound.
func (s *Store) Show(ctx context.Context, id string) ([]Death, error) {
	ids := []string{id}
	if of := endpointsOfID(id); of == nil {
		ids = nil
		if _, err := s.each(ctx, &Filter{IDs: []string{id}}, nil, inWaves, locked(func(e *Entry) { ids = append(ids, e.ID()) })); err != nil {
			return nil, err
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
	} else if delivery, _, err := schemas.ParseLetterKey(id); err == nil {
		ids = append(ids, delivery)
	}
	var deaths []Death
	for _, id := range ids {
		found, err := s.deaths(ctx, id)
		if err != nil {
			return nil, err
		}
		deaths = append(deaths, found...)
	}
	if len(deaths) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return deaths, nil
}

// locked makes one visitor for all partitions.
func locked(fn func(*Entry)) func(int32) func(*Entry) error {
	var mu sync.Mutex
	return func(int32) func(*Entry) error {
		return func(e *Entry) error {
			mu.Lock()
			defer mu.Unlock()
			fn(e)
			return nil
		}
	}
}

// deaths reads the partition of a delivery's endpoint. When the count of partitions was
// raised since, other deaths may be in another: later ones than the first, where that is
// found, and else any.
func (s *Store) deaths(ctx context.Context, delivery string) ([]Death, error) {
	ends, err := s.reader.Ends(ctx, s.topic)
	if err != nil {
		return nil, explain(err, s.topic, "Read")
	}
	s.reads(0)
	_, endpoint, err := schemas.ParseDeliveryID(delivery)
	if err != nil {
		return nil, nil //nolint:nilerr // then it is no delivery id, and there are none
	}
	ever := kafka.PartitionsEver([]byte(endpoint), int32(len(ends)))
	found, err := s.deathsIn(ctx, delivery, ever[:1], time.Time{}, ends)
	if err != nil {
		return nil, explain(err, s.topic, "Read")
	}
	var since time.Time
	for _, d := range found {
		if d.Generation == 0 {
			since = d.DiedAt
		}
	}
	more, err := s.deathsIn(ctx, delivery, ever[1:], since, ends)
	found = append(found, more...)
	slices.SortFunc(found, func(a, b Death) int { return cmp.Compare(a.Generation, b.Generation) })
	return found, explain(err, s.topic, "Read")
}

func (s *Store) deathsIn(ctx context.Context, delivery string, partitions []int32, since time.Time, ends []int64) (found []Death, err error) {
	from, err := s.lowest(ctx, &Filter{Since: since})
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(width(len(partitions)))
	for _, p := range partitions {
		group.Go(func() error {
			d := deaths{delivery: delivery, byKey: map[string]*Death{}}
			err := s.reader.Sift(gctx, s.topic, p, from[p], ends[p], 1<<20, d.mayBeIn, d.records)
			mu.Lock()
			defer mu.Unlock()
			for _, death := range d.byKey {
				found = append(found, *death)
			}
			return err
		})
	}
	err = group.Wait()
	return found, err
}

// deaths are those of one delivery in one partition, which is read forwards: of two
// copies of a death the later one counts, and a tombstone settles what is before it.
type deaths struct {
	delivery string
	byKey    map[string]*Death
}

// mayBeIn: a letter's key, and that of its tombstone, begins with the delivery id.
func (d *deaths) mayBeIn(batch []byte) bool { return bytes.Contains(batch, []byte(d.delivery)) }

func (d *deaths) records(recs []schemas.Record) error {
	for i := range recs {
		rec := &recs[i]
		key := string(rec.Key)
		if id, _, err := schemas.ParseLetterKey(key); err != nil || id != d.delivery {
			continue
		}
		if rec.Value == nil {
			if death := d.byKey[key]; death != nil {
				death.Settled = cmp.Or(header(rec.Headers, schemas.HeaderTombstone), "settled")
				death.Run, death.At = header(rec.Headers, schemas.HeaderRun), rec.Timestamp
			}
			continue
		}
		var e Entry
		if e.read(rec) == nil {
			d.byKey[key] = &Death{Entry: *e.detach()}
		}
	}
	return nil
}
