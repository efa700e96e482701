package dlq

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Group is the letters that died in the same way for the same endpoint.
type Group struct {
	Reason     schemas.Reason     `json:"reason"`
	Status     int                `json:"status,omitempty"`
	ErrorClass schemas.ErrorClass `json:"error_class,omitempty"`
	EndpointID string             `json:"endpoint_id"`

	Count    int64     `json:"count"`
	Bytes    int64     `json:"bytes"`
	First    time.Time `json:"first_died_at"`
	Last     time.Time `json:"last_died_at"`
	Sample   string    `json:"sample_error,omitempty"` // of the last
	SampleID string    `json:"sample_id"`              // delivery id of the last
	Replayed int64     `json:"replayed,omitempty"`     // have died before
	SameWay  int64     `json:"same_way,omitempty"`     // of them, in the same way
	Expiring int64     `json:"expiring,omitempty"`     // within a day
}

// Summary is all groups, the largest first.
type Summary struct {
	Groups   []*Group
	Count    int64
	Bytes    int64
	Coverage Coverage
	NoExpiry error // why Group.Expiring is not known; nil: it is
}

type groupKey struct {
	reason   schemas.Reason
	status   int
	class    schemas.ErrorClass
	endpoint string
}

// groups are those of one partition; an endpoint is in one partition only, but for
// letters that were written when there were fewer.
type groups struct {
	by       map[groupKey]*Group
	last     *Group
	lastKey  groupKey
	expiring time.Time // letters written before it expire within a day; zero: none does
}

func (g *groups) add(e *Entry) error {
	key := groupKey{e.Reason, e.LastStatus, e.ErrorClass, e.EndpointID}
	group := g.last
	if group == nil || key != g.lastKey {
		group = g.by[key]
		if group == nil {
			group = &Group{Reason: e.Reason, Status: e.LastStatus, ErrorClass: e.ErrorClass, EndpointID: e.EndpointID, First: e.DiedAt}
			g.by[key] = group
		}
		g.last, g.lastKey = group, key
	}
	group.Count++
	group.Bytes += int64(e.Size)
	if e.DiedAt.After(group.Last) || group.SampleID == "" {
		group.Last, group.Sample, group.SampleID = e.DiedAt, e.Error, e.ID()
	}
	if e.DiedAt.Before(group.First) {
		group.First = e.DiedAt
	}
	if e.Generation > 0 {
		group.Replayed++
	}
	if e.SameWay {
		group.SameWay++
	}
	if e.Written.Before(g.expiring) {
		group.Expiring++
	}
	return nil
}

// Summary groups what f selects. With an error that is ErrPartial it is true for
// what its Coverage names.
func (s *Store) Summary(ctx context.Context, f Filter) (*Summary, error) {
	var expiring time.Time
	keep, noExpiry := s.retention(ctx, s.topic)
	if noExpiry == nil && keep > 0 {
		expiring = time.Now().Add(24*time.Hour - keep)
	}
	var mu sync.Mutex
	var parts []*groups
	cover, err := s.visit(ctx, &f, nil, inStep, func(int32) func(*Entry) error {
		g := &groups{by: map[groupKey]*Group{}, expiring: expiring}
		mu.Lock()
		parts = append(parts, g)
		mu.Unlock()
		return g.add
	})
	if err != nil && !errors.Is(err, ErrPartial) {
		return nil, err
	}
	sum := joined(parts)
	sum.Coverage, sum.NoExpiry = cover, noExpiry
	return sum, err
}

func joined(parts []*groups) *Summary {
	all := map[groupKey]*Group{}
	sum := &Summary{}
	for _, g := range parts {
		for key, group := range g.by {
			sum.Count += group.Count
			sum.Bytes += group.Bytes
			if have := all[key]; have != nil {
				have.merge(group)
				continue
			}
			all[key] = group
			sum.Groups = append(sum.Groups, group)
		}
	}
	slices.SortFunc(sum.Groups, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.EndpointID, b.EndpointID), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Status, b.Status), cmp.Compare(a.ErrorClass, b.ErrorClass))
	})
	return sum
}

func (g *Group) merge(o *Group) {
	g.Count += o.Count
	g.Bytes += o.Bytes
	g.Replayed += o.Replayed
	g.SameWay += o.SameWay
	g.Expiring += o.Expiring
	if o.First.Before(g.First) {
		g.First = o.First
	}
	if o.Last.After(g.Last) {
		g.Last, g.Sample, g.SampleID = o.Last, o.Sample, o.SampleID
	}
}

// Count counts what f selects; an error that is ErrPartial as in Summary.
func (s *Store) Count(ctx context.Context, f Filter) (int64, Coverage, error) {
	var mu sync.Mutex
	var parts []*int64
	cover, err := s.visit(ctx, &f, nil, inStep, func(int32) func(*Entry) error {
		n := new(int64)
		mu.Lock()
		parts = append(parts, n)
		mu.Unlock()
		return func(*Entry) error { *n++; return nil }
	})
	var all int64
	for _, n := range parts {
		all += *n
	}
	return all, cover, err
}

// List hands over what f selects, newest first, without payloads and the producers'
// own headers; an error that is ErrPartial as in Summary. An error of fn ends it.
func (s *Store) List(ctx context.Context, f Filter, fn func(*Entry) error) (Coverage, error) {
	return s.newest(ctx, &f, nil, fn)
}
