package attempts

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

const (
	chunkBytes = 256 << 10              // of one fetch
	pollEvery  = 200 * time.Millisecond // of Follow, when nothing comes
	retryEvery = time.Second            // of Follow, when Kafka does not answer
)

// Log is the attempts topic of one installation. It is safe for concurrent use.
type Log struct {
	// Trouble, if not nil, hears once of each time in which Follow gets no answer.
	Trouble func(err error)

	cfg      kafka.Config
	retryFor time.Duration
	reader   *kafka.Reader
	topic    string

	mu    sync.Mutex
	extra []*kafka.Reader // of searches: a broker answers one reader's requests one after another
}

// Open makes a Log with a client of its own; retryFor is how long a broker may
// give no answer. Close it.
func Open(cfg kafka.Config, retryFor time.Duration) (*Log, error) {
	cfg = cfg.WithDefaults()
	r, err := kafka.NewReader(cfg, kafka.WithRetryFor(retryFor))
	if err != nil {
		return nil, err
	}
	return &Log{cfg: cfg, retryFor: retryFor, reader: r, topic: cfg.Names.Attempts()}, nil
}

// Close closes the client; calls in flight fail.
func (l *Log) Close() {
	l.reader.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.extra {
		r.Close()
	}
	l.extra = nil
}

// Position is a place in the log: an offset for each partition.
type Position []int64

// End is the place after the last attempt of now.
func (l *Log) End(ctx context.Context) (Position, error) { return l.reader.Ends(ctx, l.topic) }

// Last returns the newest attempts before a position that the filter wants, at
// most limit, the oldest of them first. It does not read beyond Since. Where the filter
// names an endpoint, it reads the endpoint's partition, and of those that were it before
// the partitions were raised what may be newer than what it has found; without either it
// may have to read the whole topic. more says that the limit cut off older ones. When ctx
// ends first, the error is a *PartialError, and what was found is there.
func (l *Log) Last(ctx context.Context, f Filter, end Position, limit int) (found []schemas.Attempt, more bool, err error) {
	starts, err := l.starts(ctx, f.Since)
	if err != nil {
		return nil, false, err
	}
	s := search{log: l, filter: &f, limit: limit}
	for _, p := range l.partitions(&f, min(len(end), len(starts))) { // those above came after the position
		s.add(p, starts[p], end[p])
	}
	s.active = len(s.spans)
	if f.endpoint() != "" {
		s.active = min(1, s.active)
	}
	found, more, err = s.run(ctx)
	if err != nil || s.active == len(s.spans) {
		return found, more, err
	}
	if len(found) > 0 && (more || s.begun()) { // then of the others only what is newer is wanted
		if starts, err = l.starts(ctx, found[0].Started); err != nil {
			return nil, false, err
		}
		s.notBefore(starts)
	}
	s.active = len(s.spans)
	return s.run(ctx)
}

// PartialError is a search that was ended early: what came with it was attempted, and
// there may be others.
type PartialError struct {
	Read, Of int64 // records
	Err      error
}

func (e *PartialError) Error() string {
	return fmt.Sprintf("interrupted, so this is only a part: %d of %d records were searched", e.Read, e.Of)
}

func (e *PartialError) Unwrap() error { return e.Err }

func (l *Log) starts(ctx context.Context, since time.Time) ([]int64, error) {
	if since.IsZero() {
		return l.reader.Starts(ctx, l.topic)
	}
	// A record is written after its attempt began, but by the clocks of brokers, which
	// may be behind those of dispatchers. The filter looks at the attempt's own time.
	return l.reader.After(ctx, l.topic, since.Add(-clockMargin))
}

// clockMargin is how far the clocks of brokers may be behind those of dispatchers.
const clockMargin = 10 * time.Minute

// partitions are those, of n, that wanted attempts can be in. The endpoint's of now is
// the first.
func (l *Log) partitions(f *Filter, n int) []int32 {
	if id := f.endpoint(); id != "" && n > 0 {
		return kafka.PartitionsEver([]byte(id), int32(n))
	}
	all := make([]int32, n)
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

// Follow hands each from then on attempts that the filter wants, until ctx ends
// (its error is nil then) or each returns an error. While Kafka gives no answer it
// goes on trying.
func (l *Log) Follow(ctx context.Context, f Filter, from Position, each func(schemas.Attempt) error) error {
	at := slices.Clone(from)
	pause := time.NewTimer(0)
	defer pause.Stop()
	silent := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		batch, err := l.news(ctx, &f, &at)
		sortByTime(batch)
		for i := range batch {
			if err := each(batch[i]); err != nil {
				return err
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if !silent && l.Trouble != nil {
				l.Trouble(err)
			}
			silent = true
			pause.Reset(retryEvery)
		case len(batch) > 0:
			silent = false
			pause.Reset(0)
		default:
			silent = false
			pause.Reset(pollEvery)
		}
	}
}

// news reads what has come since at, and moves at on.
func (l *Log) news(ctx context.Context, f *Filter, at *Position) (batch []schemas.Attempt, err error) {
	ends, err := l.End(ctx)
	if err != nil {
		return nil, err
	}
	for len(*at) < len(ends) {
		*at = append(*at, 0) // a new partition: all of it is news
	}
	for _, p := range l.partitions(f, len(ends)) {
		if (*at)[p] >= ends[p] {
			(*at)[p] = min((*at)[p], ends[p]) // a topic that was made anew begins again
			continue
		}
		err := l.reader.ReadForwards(ctx, l.topic, p, (*at)[p], ends[p], chunkBytes, func(recs []schemas.Record) error {
			for i := range recs {
				if a, ok := parse(&recs[i]); ok && f.Match(&a) {
					batch = append(batch, a)
				}
			}
			(*at)[p] = recs[len(recs)-1].Offset + 1
			return nil
		})
		if err != nil {
			return batch, err
		}
		(*at)[p] = ends[p]
	}
	return batch, nil
}

// parse reads one record; what is no attempt is passed over.
func parse(rec *schemas.Record) (schemas.Attempt, bool) {
	var a schemas.Attempt
	if err := json.Unmarshal(rec.Value, &a); err != nil || a.DeliveryID == "" {
		return a, false
	}
	return a, true
}

func sortByTime(list []schemas.Attempt) {
	slices.SortStableFunc(list, func(a, b schemas.Attempt) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Number, b.Number))
	})
}
