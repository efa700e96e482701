package offsets

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// slowTracker is the tracker's rule with no cleverness.
type slowTracker struct {
	base     int64
	received []int64
	done     map[int64]bool
}

func (s *slowTracker) watermark() int64 {
	for _, o := range s.received {
		if !s.done[o] {
			return o
		}
	}
	if n := len(s.received); n > 0 {
		return s.received[n-1] + 1
	}
	return s.base
}

func TestTrackerAgreesWithTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		tr := NewTracker(base)
		slow := &slowTracker{base: base, done: make(map[int64]bool)}
		last := tr.Watermark()
		t.Repeat(map[string]func(*rapid.T){
			"receive": func(t *rapid.T) {
				next := tr.Next() + rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 200), rapid.Int64Range(0, 1<<33)).Draw(t, "gap")
				for range rapid.IntRange(1, 100).Draw(t, "records") {
					if !tr.Received(next) {
						t.Fatalf("offset %d refused", next)
					}
					slow.received = append(slow.received, next)
					next += rapid.SampledFrom([]int64{1, 1, 1, 1, 2, 3}).Draw(t, "step")
				}
			},
			"again": func(t *rapid.T) {
				if o := tr.Next() - rapid.Int64Range(1, 300).Draw(t, "back"); tr.Received(o) {
					t.Fatalf("offset %d received twice", o)
				}
			},
			"done": func(t *rapid.T) {
				if len(slow.received) == 0 {
					return
				}
				for range rapid.IntRange(1, 50).Draw(t, "times") {
					o := rapid.SampledFrom(slow.received).Draw(t, "offset")
					if tr.Done(o) == slow.done[o] {
						t.Fatalf("Done(%d) = %v", o, !slow.done[o])
					}
					slow.done[o] = true
				}
			},
			"stray": func(t *rapid.T) {
				o := rapid.Int64Range(0, 1<<41).Draw(t, "offset")
				if !slices.Contains(slow.received, o) && tr.Done(o) {
					t.Fatalf("Done(%d) of an offset that never came", o)
				}
			},
			"": func(t *rapid.T) {
				if got, want := tr.Watermark(), slow.watermark(); got != want {
					t.Fatalf("watermark %d, want %d", got, want)
				}
				if tr.Watermark() < last {
					t.Fatalf("watermark fell from %d to %d", last, tr.Watermark())
				}
				last = tr.Watermark()
				checkSets(t, tr, slow)
			},
		})
	})
}

func checkSets(t *rapid.T, tr *Tracker, slow *slowTracker) {
	var open []int64
	for _, o := range slow.received {
		if !slow.done[o] {
			open = append(open, o)
		}
	}
	if got := slices.Collect(tr.EachOpen); !slices.Equal(got, open) {
		t.Fatalf("open %v, want %v", got, open)
	}
	if tr.Unsettled() != len(open) {
		t.Fatalf("%d unsettled, want %d", tr.Unsettled(), len(open))
	}
	var above Set
	for from, to := range tr.EachDone {
		above = append(above, Range{from, to})
	}
	for _, o := range slow.received {
		if want := slow.done[o] && o >= tr.Watermark(); above.Has(o) != want {
			t.Fatalf("done above the watermark: %d is %v in %v", o, !want, above)
		}
		if tr.Open(o) == slow.done[o] {
			t.Fatalf("Open(%d) = %v", o, !slow.done[o])
		}
	}
}

func TestOffsetSetAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set Set
		truth := make(map[int64]bool)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				from := rapid.Int64Range(0, 80).Draw(t, "from")
				to := from + rapid.Int64Range(0, 12).Draw(t, "n")
				set.Add(from, to)
				for o := from; o < to; o++ {
					truth[o] = true
				}
			},
			"remove": func(t *rapid.T) {
				o := rapid.Int64Range(0, 95).Draw(t, "offset")
				set.Remove(o)
				delete(truth, o)
			},
			"within": func(t *rapid.T) {
				from, to, want := rapid.Int64Range(-1, 95).Draw(t, "from"), rapid.Int64Range(-1, 95).Draw(t, "to"), int64(0)
				for o := range truth {
					if from <= o && o < to {
						want++
					}
				}
				if got := set.Within(from, to); got != want {
					t.Fatalf("%d within [%d, %d) of %v, want %d", got, from, to, set, want)
				}
			},
			"dropBelow": func(t *rapid.T) {
				floor := rapid.Int64Range(0, 60).Draw(t, "floor")
				set.DropBelow(floor)
				for o := range truth {
					if o < floor {
						delete(truth, o)
					}
				}
			},
			"": func(t *rapid.T) {
				for o := int64(-1); o < 100; o++ {
					if set.Has(o) != truth[o] {
						t.Fatalf("has(%d) = %v in %v", o, !truth[o], set)
					}
				}
				for i := 1; i < len(set); i++ {
					if set[i].From <= set[i-1].To {
						t.Fatalf("ranges touch: %v", set)
					}
				}
			},
		})
	})
}

// A record that never settles must not make the others' bookkeeping grow beyond its
// 24 bytes for 64 offsets, nor may what was settled stay when it does.
func TestTrackerMemoryIsBoundedByTheSpan(t *testing.T) {
	tr := NewTracker(0)
	const n = 128_000
	for o := range int64(n) {
		tr.Received(o)
		if o > 0 {
			tr.Done(o)
		}
	}
	if got := len(tr.chunks); got > n/64+1 {
		t.Errorf("%d chunks for %d offsets", got, n)
	}
	// With one open record at any time and never none, the chunks are freed too.
	for o := int64(n); o < 3*n; o++ {
		tr.Received(o)
		tr.Done(o - n)
		tr.Done(o - 1)
	}
	if live := len(tr.chunks) - tr.head; live > 2 || len(tr.chunks) > n/32 {
		t.Errorf("%d chunks live, %d kept", live, len(tr.chunks))
	}
}

func BenchmarkTracker(b *testing.B) {
	const window = 10_000
	order := rand.New(rand.NewPCG(1, 2)).Perm(window)
	tr := NewTracker(0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		base := int64(i) * window
		for o := range int64(window) {
			tr.Received(base + o)
		}
		for _, o := range order {
			tr.Done(base + int64(o))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/window, "ns/record")
}
