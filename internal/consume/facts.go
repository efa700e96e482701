package consume

import (
	"cmp"
	"slices"
)

// offsetRange is [from, to).
type offsetRange struct{ from, to int64 }

// offsetSet is a set of offsets as ordered ranges that neither touch nor overlap.
type offsetSet []offsetRange

// add puts [from, to) into the set.
func (s *offsetSet) add(from, to int64) {
	if from >= to {
		return
	}
	// i: first range that ends at or after from; j: first one that begins after to.
	i, _ := slices.BinarySearchFunc(*s, from, func(r offsetRange, v int64) int { return cmp.Compare(r.to, v) })
	j, found := slices.BinarySearchFunc(*s, to, func(r offsetRange, v int64) int { return cmp.Compare(r.from, v) })
	if found {
		j++
	}
	if i < j {
		from = min(from, (*s)[i].from)
		to = max(to, (*s)[j-1].to)
	}
	*s = slices.Replace(*s, i, j, offsetRange{from, to})
}

// has reports whether the offset is in the set.
func (s offsetSet) has(offset int64) bool {
	i, _ := slices.BinarySearchFunc(s, offset+1, func(r offsetRange, v int64) int { return cmp.Compare(r.to, v) })
	return i < len(s) && s[i].from <= offset
}

// dropBelow takes all offsets below floor out of the set.
func (s *offsetSet) dropBelow(floor int64) {
	i, _ := slices.BinarySearchFunc(*s, floor+1, func(r offsetRange, v int64) int { return cmp.Compare(r.to, v) })
	*s = slices.Delete(*s, 0, i)
	if len(*s) > 0 && (*s)[0].from < floor {
		(*s)[0].from = floor
	}
}

// facts is what this process knows of a partition's records without owning it: the
// offsets that are settled, and those that it still works on. They say what was
// done, not what may be committed, so they are true whoever owns the partition.
type facts struct {
	settled offsetSet
	open    map[int64]struct{}
}

// keep takes over from the tracker of an assignment that ends. An open offset for
// which dropped returns true was never begun, or was given up: it counts as never
// seen.
func (f *facts) keep(base int64, t *Tracker, dropped func(offset int64) bool) {
	f.settled.add(base, t.Watermark())
	t.EachDone(func(from, to int64) bool {
		f.settled.add(from, to)
		return true
	})
	t.EachOpen(func(offset int64) bool {
		if !dropped(offset) {
			if f.open == nil {
				f.open = make(map[int64]struct{})
			}
			f.open[offset] = struct{}{}
		}
		return true
	})
}

// dropBelow forgets what lies below the offset from which a partition is consumed:
// nobody will read it again.
func (f *facts) dropBelow(floor int64) {
	f.settled.dropBelow(floor)
	for offset := range f.open {
		if offset < floor {
			delete(f.open, offset)
		}
	}
}
