package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

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
// raised since, older deaths are in another, so all are read unless every death is there.
func (s *Store) deaths(ctx context.Context, delivery string) ([]Death, error) {
	ends, err := s.reader.Ends(ctx, s.topic)
	if err != nil {
		return nil, s.explain(err, s.topic, "Read")
	}
	s.reads(0)
	_, endpoint, err := schemas.ParseDeliveryID(delivery)
	if err != nil {
		return nil, nil //nolint:nilerr // then it is no delivery id, and there are none
	}
	home := kafka.Partition([]byte(endpoint), int32(len(ends)))
	found, err := s.deathsIn(ctx, delivery, home, ends[home])
	if err == nil && !slices.ContainsFunc(found, func(d Death) bool { return d.Generation == 0 }) {
		for p := range int32(len(ends)) {
			if p == home || err != nil {
				continue
			}
			var more []Death
			more, err = s.deathsIn(ctx, delivery, p, ends[p])
			found = append(found, more...)
		}
	}
	slices.SortFunc(found, func(a, b Death) int { return cmp.Compare(a.Generation, b.Generation) })
	return found, s.explain(err, s.topic, "Read")
}

func (s *Store) deathsIn(ctx context.Context, delivery string, p int32, end int64) ([]Death, error) {
	var found []Death
	fates := map[string]Death{} // of keys whose letter has not been met yet
	err := s.reader.ReadBackwards(ctx, s.topic, p, 0, end, 1<<20, func(recs []schemas.Record) error {
		for i := range recs {
			rec := &recs[i]
			id, _, err := schemas.ParseLetterKey(string(rec.Key))
			if err != nil || id != delivery {
				continue
			}
			key := string(rec.Key)
			fate, known := fates[key]
			switch {
			case rec.Value == nil && !known:
				how := header(rec.Headers, schemas.HeaderTombstone)
				fates[key] = Death{Settled: cmp.Or(how, "settled"), Run: header(rec.Headers, schemas.HeaderRun), At: rec.Timestamp}
			case rec.Value != nil && fate.Reason == "":
				var e Entry
				if e.read(rec) != nil {
					continue
				}
				fate.Entry = *e.detach()
				found = append(found, fate)
				fates[key] = fate // an older copy of the same death is left out
			}
		}
		return ctx.Err()
	})
	return found, err
}
