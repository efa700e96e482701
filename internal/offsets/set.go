package offsets

import (
	"cmp"
	"slices"
)

// Range is [from, to).
type Range struct{ From, To int64 }

// Set is a set of offsets as ordered ranges that neither touch nor overlap.
type Set []Range

// Add puts [from, to) into the set.
func (s *Set) Add(from, to int64) {
	if from >= to {
		return
	}
	// i: first range that ends at or after from; j: first one that begins after to.
	i, _ := slices.BinarySearchFunc(*s, from, func(r Range, v int64) int { return cmp.Compare(r.To, v) })
	j, found := slices.BinarySearchFunc(*s, to, func(r Range, v int64) int { return cmp.Compare(r.From, v) })
	if found {
		j++
	}
	if i < j {
		from = min(from, (*s)[i].From)
		to = max(to, (*s)[j-1].To)
	}
	*s = slices.Replace(*s, i, j, Range{from, to})
}

// Remove takes one offset out of the set.
func (s *Set) Remove(offset int64) {
	i, _ := slices.BinarySearchFunc(*s, offset+1, func(r Range, v int64) int { return cmp.Compare(r.To, v) })
	if i == len(*s) || (*s)[i].From > offset {
		return
	}
	r := (*s)[i]
	parts := make(Set, 0, 2)
	if r.From < offset {
		parts = append(parts, Range{r.From, offset})
	}
	if offset+1 < r.To {
		parts = append(parts, Range{offset + 1, r.To})
	}
	*s = slices.Replace(*s, i, i+1, parts...)
}

// Has reports whether the offset is in the set.
func (s Set) Has(offset int64) bool {
	i, _ := slices.BinarySearchFunc(s, offset+1, func(r Range, v int64) int { return cmp.Compare(r.To, v) })
	return i < len(s) && s[i].From <= offset
}

// Within is how many offsets of [from, to) are in the set.
func (s Set) Within(from, to int64) (n int64) {
	for _, r := range s {
		n += max(0, min(r.To, to)-max(r.From, from))
	}
	return n
}

// DropBelow takes all offsets below floor out of the set.
func (s *Set) DropBelow(floor int64) {
	i, _ := slices.BinarySearchFunc(*s, floor+1, func(r Range, v int64) int { return cmp.Compare(r.To, v) })
	*s = slices.Delete(*s, 0, i)
	if len(*s) > 0 && (*s)[0].From < floor {
		(*s)[0].From = floor
	}
}
