package dlq

import (
	"context"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// Selection is which letters a job is about: their offsets, 8 bytes a letter, and
// what a preview says of them.
type Selection struct {
	Snapshot Snapshot
	Count    int64
	Bytes    int64
	Oldest   time.Time // death
	Newest   time.Time
	Shares   map[string]*Share        // by endpoint id
	Unfit    map[string]int64         // why, how many: selected by the filter, but not to be sent; not in Count
	Nowhere  map[schemas.Reason]int64 // of Unfit, those that belong to no endpoint
	From     Snapshot                 // the lowest offset selected of each partition, where the filter has a limit; else nil
	Coverage Coverage

	topicID [16]byte          // of the topic that they were read from
	offsets map[int32][]int64 // ascending
	sources *fromSources      // a resend may have; else nil
}

// Share is what belongs to one endpoint.
type Share struct {
	Count   int64
	Reasons map[schemas.Reason]int64

	part  int32 // where its oldest letter is
	first int64
}

// Total is what the filter selects, what is unfit included.
func (s *Selection) Total() int64 {
	n := s.Count
	for _, c := range s.Unfit {
		n += c
	}
	return n
}

// topicHex is the id of the topic that the letters stand in; empty if there are none.
func (s *Selection) topicHex() string {
	if s.topicID == [16]byte{} {
		return ""
	}
	return hex.EncodeToString(s.topicID[:])
}

// selected is a Selection that is being made, by one partition.
type selected struct {
	Selection
	unfit func(*Entry) string
	list  []int64
	part  int32
	from  int64 // the lowest offset selected
}

func (s *selected) add(e *Entry) error {
	s.from, s.topicID = e.Offset, e.rec.TopicID // they come newest first
	if why := s.unfit(e); why != "" {
		s.Unfit[why]++
		if why == SkipNowhere {
			s.Nowhere[e.Reason]++
		}
		return nil
	}
	s.Count++
	s.Bytes += int64(e.Size)
	if s.Oldest.IsZero() || e.DiedAt.Before(s.Oldest) {
		s.Oldest = e.DiedAt
	}
	if e.DiedAt.After(s.Newest) {
		s.Newest = e.DiedAt
	}
	share := s.Shares[e.EndpointID]
	if share == nil {
		share = &Share{Reasons: map[schemas.Reason]int64{}}
		s.Shares[e.EndpointID] = share
	}
	share.Count++
	share.Reasons[e.Reason]++
	share.part, share.first = e.Partition, e.Offset
	s.list = append(s.list, e.Offset)
	return nil
}

// choose reads which letters f selects below a snapshot. unfit says why one is not to
// be taken, or nothing. from is Selection.From of a selection that was made before: what
// is left of it is chosen, and nothing else that the limit would have room for now.
func (s *Store) choose(ctx context.Context, f Filter, below, from Snapshot, unfit func(*Entry) string) (*Selection, error) {
	limited := f.Limit > 0
	if from != nil {
		f.Limit = 0
	}
	var mu sync.Mutex
	var parts []*selected
	cover, err := s.visit(ctx, &f, below, inWaves, func(p int32) func(*Entry) error {
		sel := &selected{part: p, unfit: unfit}
		sel.Shares, sel.Unfit, sel.Nowhere = map[string]*Share{}, map[string]int64{}, map[schemas.Reason]int64{}
		mu.Lock()
		parts = append(parts, sel)
		mu.Unlock()
		if from == nil {
			return sel.add
		}
		first, has := from[p]
		return func(e *Entry) error {
			if !has || e.Offset < first {
				return nil
			}
			return sel.add(e)
		}
	})
	if err != nil {
		return nil, err
	}
	all := &Selection{Snapshot: below, Shares: map[string]*Share{}, Unfit: map[string]int64{}, Nowhere: map[schemas.Reason]int64{},
		Coverage: cover, offsets: map[int32][]int64{}}
	if limited {
		all.From = Snapshot{}
	}
	for _, p := range parts {
		all.take(p)
		if limited {
			all.From[p.part] = p.from
		}
	}
	return all, nil
}

func (s *Selection) take(p *selected) {
	s.Count += p.Count
	if p.Total() > 0 {
		s.topicID = p.topicID
	}
	s.Bytes += p.Bytes
	if s.Oldest.IsZero() || (!p.Oldest.IsZero() && p.Oldest.Before(s.Oldest)) {
		s.Oldest = p.Oldest
	}
	if p.Newest.After(s.Newest) {
		s.Newest = p.Newest
	}
	for why, n := range p.Unfit {
		s.Unfit[why] += n
	}
	for reason, n := range p.Nowhere {
		s.Nowhere[reason] += n
	}
	for id, share := range p.Shares {
		have := s.Shares[id]
		if have == nil {
			s.Shares[id] = share
			continue
		}
		have.Count += share.Count
		for r, n := range share.Reasons {
			have.Reasons[r] += n
		}
	}
	if len(p.list) > 0 {
		slices.Reverse(p.list)
		s.offsets[p.part] = p.list
	}
}

// gapWorthSkipping is a number of offsets that are not read when none of them is wanted.
const gapWorthSkipping = 4096

// reread hands over the letters at ascending offsets of a partition, oldest first,
// with payload and headers. What has gone meanwhile is left out, and so is all that a
// topic holds which was made anew: at the offset of a letter stands another one there.
// An Entry shares its bytes with what was fetched and may be kept for as long as they
// are needed.
func (s *Store) reread(ctx context.Context, sel *Selection, part int32, offsets []int64, chunk int32, t *turn, fn func(*Entry) error) error {
	return s.records(ctx, s.topic, part, offsets, chunk, t, func(rec *schemas.Record) error {
		if rec.TopicID != sel.topicID {
			return nil
		}
		e := new(Entry)
		if err := e.read(rec); err != nil {
			return err // it could be read a moment ago
		}
		return fn(e)
	})
}

// records hands over what stands at ascending offsets of a partition, a chunk a turn.
// While no broker answers for it, it goes on trying: a run of hours shall not end with a
// broker's restart.
func (s *Store) records(ctx context.Context, topic string, part int32, offsets []int64, chunk int32, t *turn, fn func(*schemas.Record) error) error {
	if err := t.begin(ctx); err != nil {
		return err
	}
	defer t.end()
	for len(offsets) > 0 {
		n := 1
		for n < len(offsets) && offsets[n]-offsets[n-1] < gapWorthSkipping {
			n++
		}
		end := offsets[n-1] + 1
		var refused error // by fn, which ends it
		err := s.reader.ReadForwards(ctx, topic, part, offsets[0], end, chunk, func(recs []schemas.Record) error {
			for i := range recs {
				for len(offsets) > 0 && offsets[0] < recs[i].Offset {
					offsets = offsets[1:]
				}
				if len(offsets) == 0 || offsets[0] != recs[i].Offset {
					continue
				}
				if refused = fn(&recs[i]); refused != nil {
					return refused
				}
				offsets = offsets[1:]
			}
			return t.next(ctx)
		})
		switch {
		case err == nil:
			for len(offsets) > 0 && offsets[0] < end {
				offsets = offsets[1:]
			}
		case refused == nil && ctx.Err() == nil && kafka.IsTransient(err):
			s.log.Warn("what was selected cannot be read, trying again", "err", err)
			if err := t.next(ctx); err != nil { // other brokers may be there
				return err
			}
		default:
			return explain(err, topic, "Read")
		}
	}
	return nil
}
