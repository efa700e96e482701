package attempts

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

const (
	searchers    = 3       // readers at once, each with a connection of its own
	searchBytes  = 4 << 20 // of one fetch
	firstSegment = 2_000   // offsets; the next one back is twice as long
	lastSegment  = 256_000 // offsets
)

// search looks for the newest attempts, from the newest segments of its partitions
// to the oldest. The first ones are short, because most often the newest are wanted,
// and then they get long: a segment is read forwards, as Kafka does it best.
type search struct {
	log    *Log
	filter *Filter
	limit  int
	sieve  func([]byte) bool
	of     int64 // records that there are to search

	mu     sync.Mutex
	spans  []*span // one a partition
	active int     // so many of them are searched, the first
	turn   int
}

// span is one partition of a search, in segments from the newest to the oldest.
type span struct {
	partition int32
	from, to  int64 // what is left to read
	step      int64
	segments  []*segment
	enough    bool // the newest segments have as many as are wanted
}

// segment is a part of a partition that one searcher reads.
type segment struct {
	from, to int64
	done     bool
	first    bool              // nothing that is wanted stands before it
	more     bool              // there were more than the limit
	found    []schemas.Attempt // at most the limit, the newest
}

func (s *search) add(partition int32, from, to int64) {
	s.spans = append(s.spans, &span{partition: partition, from: from, to: to, step: firstSegment})
	s.of += max(0, to-from)
}

// notBefore leaves out of the spans that are not searched yet what stands before starts.
func (s *search) notBefore(starts []int64) {
	for _, p := range s.spans[s.active:] {
		if from := max(p.from, min(p.to, starts[p.partition])); from > p.from {
			s.of -= from - p.from
			p.from = from
		}
	}
}

// run searches the active spans, and returns what was found in all, sorted and cut to
// the limit.
func (s *search) run(outer context.Context) (found []schemas.Attempt, more bool, err error) {
	s.sieve = s.filter.sieve()
	if s.sieve == nil {
		s.sieve = func([]byte) bool { return true }
	}
	g, ctx := errgroup.WithContext(outer)
	for i := range searchers {
		g.Go(func() error {
			r, err := s.log.readerAt(i)
			if err != nil {
				return err
			}
			for {
				p, seg := s.next()
				if seg == nil {
					return nil
				}
				if err := s.read(ctx, r, p, seg); err != nil {
					return err
				}
				s.finish(p, seg)
			}
		})
	}
	if err = g.Wait(); err != nil {
		if outer.Err() == nil {
			return nil, false, err
		}
		err = s.partial(err)
	}
	for _, p := range s.spans {
		for _, seg := range p.segments {
			found, more = append(found, seg.found...), more || seg.more
			if seg.first {
				break
			}
		}
		more = more || (p.enough && p.from < p.to && !p.first())
	}
	sortByTime(found)
	if len(found) > s.limit {
		found, more = found[len(found)-s.limit:], true
	}
	return found, more, err
}

// partial says how far a search came that was ended early.
func (s *search) partial(err error) error {
	read := int64(0)
	for _, p := range s.spans {
		for _, seg := range p.segments {
			if seg.done {
				read += seg.to - seg.from
			}
		}
	}
	return &PartialError{Read: read, Of: s.of, Err: err}
}

// readerAt is the i-th reader; the first one is the log's own.
func (l *Log) readerAt(i int) (*kafka.Reader, error) {
	if i == 0 {
		return l.reader, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.extra) < i {
		r, err := kafka.NewReader(l.cfg, kafka.WithRetryFor(l.retryFor))
		if err != nil {
			return nil, err
		}
		l.extra = append(l.extra, r)
	}
	return l.extra[i-1], nil
}

// next is the next segment to read, of the partitions in turn; nil: there is none.
func (s *search) next() (*span, *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range s.active {
		p := s.spans[s.turn%s.active]
		s.turn++
		if p.enough || p.from >= p.to {
			continue
		}
		seg := &segment{from: max(p.from, p.to-p.step), to: p.to}
		p.to, p.step = seg.from, min(2*p.step, lastSegment)
		p.segments = append(p.segments, seg)
		return p, seg
	}
	return nil, nil
}

// begun reports whether the first of what is wanted is found.
func (s *search) begun() bool { return slices.ContainsFunc(s.spans, (*span).first) }

// finish notes that a segment is read, and whether the newest ones are enough.
func (s *search) finish(p *span, seg *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg.done = true
	n := 0
	for _, seg := range p.segments {
		if !seg.done {
			return
		}
		if n += len(seg.found); n >= s.limit+1 || seg.more || seg.first {
			p.enough = true
			return
		}
	}
}

// first reports whether a segment that is read holds the first of what is wanted.
func (p *span) first() bool {
	for _, seg := range p.segments {
		if seg.first {
			return true
		}
	}
	return false
}

// read searches a segment. It keeps the newest of what it finds, one more than the
// limit for a moment.
func (s *search) read(ctx context.Context, r *kafka.Reader, p *span, seg *segment) error {
	return r.Sift(ctx, s.log.topic, p.partition, seg.from, seg.to, searchBytes, s.sieve, func(recs []schemas.Record) error {
		for i := range recs {
			if !s.sieve(recs[i].Value) {
				continue // another one of its batch
			}
			a, ok := parse(&recs[i])
			if !ok || !s.filter.Match(&a) {
				continue
			}
			// Nothing of a delivery stands before its first attempt.
			seg.first = seg.first || (s.filter.Delivery != "" && a.Number == 1 && a.Generation == 0)
			seg.found = append(seg.found, a)
			if len(seg.found) > s.limit {
				seg.found, seg.more = seg.found[1:], true
			}
		}
		return nil
	})
}
