package consume

import (
	"github.com/milena-project/milena/internal/offsets"
)

// facts is what this process knows of a partition's records without owning it: the
// offsets that are settled, and those that it still works on. They say what was
// done, not what may be committed, so they are true whoever owns the partition.
type facts struct {
	settled offsets.Set
	open    map[int64]struct{}
}

// keep takes over from the tracker of an assignment that ends. An open offset for
// which dropped returns true was never begun, or was given up: it counts as never
// seen.
func (f *facts) keep(base int64, t *offsets.Tracker, dropped func(offset int64) bool) {
	f.settled.Add(base, t.Watermark())
	t.EachDone(func(from, to int64) bool {
		f.settled.Add(from, to)
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
	f.settled.DropBelow(floor)
	for offset := range f.open {
		if offset < floor {
			delete(f.open, offset)
		}
	}
}
