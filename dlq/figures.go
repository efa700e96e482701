package dlq

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/milena-project/milena/schemas"
)

// Figures are what is open in some partitions of the topic.
type Figures struct {
	Open       map[schemas.Reason]int64
	Oldest     time.Time     // when the oldest open letter was written; zero: none is open
	Retention  time.Duration // of the topic; 0: for ever
	Took       time.Duration // to count
	Partitions int           // that were counted
}

// Figures counts what is open in the given partitions.
func (s *Store) Figures(ctx context.Context, partitions []int32) (Figures, error) {
	began := time.Now()
	f := Figures{Open: map[schemas.Reason]int64{}, Partitions: len(partitions)}
	var err error
	if f.Retention, err = s.retention(ctx, s.topic); err != nil {
		return f, err
	}
	ends, err := s.reader.Ends(ctx, s.topic)
	if err != nil {
		return f, explain(err, s.topic, "Read")
	}
	parts := make([]partFigures, len(partitions))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(2) // it is nobody's hurry
	for i, p := range partitions {
		if int(p) >= len(ends) {
			continue
		}
		group.Go(func() error {
			parts[i].open = map[schemas.Reason]int64{}
			sc := &scan{store: s, filter: &Filter{}, part: p, below: ends[p], visit: parts[i].add}
			return sc.run(gctx, 0, ends[p], chunkFor(8))
		})
	}
	if err := group.Wait(); err != nil {
		return f, explain(err, s.topic, "Read")
	}
	for _, p := range parts {
		for reason, n := range p.open {
			f.Open[reason] += n
		}
		if !p.oldest.IsZero() && (f.Oldest.IsZero() || p.oldest.Before(f.Oldest)) {
			f.Oldest = p.oldest
		}
	}
	f.Took = time.Since(began)
	return f, nil
}

type partFigures struct {
	open   map[schemas.Reason]int64
	oldest time.Time
}

func (p *partFigures) add(e *Entry) error {
	p.open[e.Reason]++
	if p.oldest.IsZero() || e.Written.Before(p.oldest) {
		p.oldest = e.Written
	}
	return nil
}

const (
	figuresEvery = time.Minute
	figuresAsk   = time.Second // whether there is a partition now
	figuresShare = 100         // at most a hundredth of the time is spent on counting
)

// Watch counts again and again what is open in the partitions that owned names at
// that moment, and reports it, until ctx ends. Nothing is kept between two countings,
// so a restart loses nothing and retention and compaction are seen as they are; the
// price is one reading of those partitions, at most once a minute and for at most a
// hundredth of the time: a topic of 5 GB that takes 20 s to read is read every half
// hour. Errors are logged, and tried again.
func (s *Store) Watch(ctx context.Context, owned func() []int32, report func(Figures)) {
	wait := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		parts := owned()
		if len(parts) == 0 {
			report(Figures{})
			wait = figuresAsk
			continue
		}
		f, err := s.Figures(ctx, parts)
		wait = max(figuresEvery, f.Took*figuresShare)
		switch {
		case err == nil:
			report(f)
		case ctx.Err() == nil:
			s.log.Warn("open dead letters cannot be counted, trying again", "topic", s.topic, "err", err)
		}
	}
}
