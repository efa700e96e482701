package offsets

import (
	"math/bits"
	"sort"
)

// Tracker turns offsets that complete out of order into a watermark: the offset
// that may be committed. Only offsets that were received count; an offset between
// two received ones that never came (a transaction marker, a compacted or aborted
// record) is done. Each call is O(1) amortised and costs 24 bytes for each 64
// offsets between the watermark and the last one received.
//
// A Tracker is not safe for concurrent use.
type Tracker struct {
	chunks    []chunk // ordered by key; those before head are free
	head      int
	watermark int64
	next      int64 // last received + 1
	unsettled int
	changes   uint64
}

// chunk holds the state of 64 neighbouring offsets. Offsets are looked up by
// their distance from the first chunk, which is exact as long as no whole chunk is
// missing between them, else by binary search: a log that jumps by a billion
// offsets costs one chunk.
type chunk struct {
	key      int64 // offset >> 6
	received uint64
	done     uint64
}

// NewTracker returns a tracker whose watermark is base: the fetched commit, never
// the first record seen (the log may begin later, and the commit must not wait for
// a record that does not exist).
func NewTracker(base int64) *Tracker {
	return &Tracker{watermark: base, next: base}
}

// Received notes that a record was read. It returns false, and does nothing, for
// an offset below one that was received before or below the base.
func (t *Tracker) Received(offset int64) bool {
	if offset < t.next {
		return false
	}
	t.next = offset + 1
	key := offset >> 6
	if n := len(t.chunks); n == t.head || t.chunks[n-1].key != key {
		t.chunks = append(t.chunks, chunk{key: key})
	}
	t.chunks[len(t.chunks)-1].received |= 1 << (offset & 63)
	t.unsettled++
	if t.unsettled == 1 {
		t.advance()
	}
	return true
}

// Done notes that a received record is settled. It returns false where the offset
// was not received or is done already.
func (t *Tracker) Done(offset int64) bool {
	c := t.find(offset)
	bit := uint64(1) << (offset & 63)
	if c == nil || c.received&^c.done&bit == 0 {
		return false
	}
	c.done |= bit
	t.unsettled--
	t.changes++
	if offset == t.watermark {
		t.advance()
	}
	return true
}

// Watermark is the first offset that is not done, or the one after the last
// received when all are. It never falls.
func (t *Tracker) Watermark() int64 { return t.watermark }

// Next is the offset after the last one received; the base when there was none.
func (t *Tracker) Next() int64 { return t.next }

// Unsettled is the number of offsets that were received and are not done.
func (t *Tracker) Unsettled() int { return t.unsettled }

// Open reports whether the offset was received and is not done.
func (t *Tracker) Open(offset int64) bool {
	c := t.find(offset)
	return c != nil && (c.received&^c.done)>>(offset&63)&1 == 1
}

// EachOpen calls yield with the offsets that are received and not done, in order,
// until it returns false.
func (t *Tracker) EachOpen(yield func(offset int64) bool) {
	for _, c := range t.chunks[t.head:] {
		for open := c.received &^ c.done; open != 0; open &= open - 1 {
			if !yield(c.key<<6 + int64(bits.TrailingZeros64(open))) {
				return
			}
		}
	}
}

// EachDone calls yield with the ranges [from, to) above the watermark that hold
// received offsets which are all done, in order, until it returns false. Offsets
// that were never received may lie inside a range, open ones never do.
func (t *Tracker) EachDone(yield func(from, to int64) bool) {
	from, to := int64(-1), int64(-1)
	for _, c := range t.chunks[t.head:] {
		for rest := c.received; rest != 0; rest &= rest - 1 {
			i := bits.TrailingZeros64(rest)
			offset := c.key<<6 + int64(i)
			switch {
			case offset < t.watermark:
			case c.done>>i&1 == 1:
				if from < 0 {
					from = offset
				}
				to = offset + 1
			case from >= 0:
				if !yield(from, to) {
					return
				}
				from = -1
			}
		}
	}
	if from >= 0 {
		yield(from, to)
	}
}

// find returns the chunk of the offset, or nil.
func (t *Tracker) find(offset int64) *chunk {
	live := t.chunks[t.head:]
	if len(live) == 0 {
		return nil
	}
	key := offset >> 6
	i := key - live[0].key // exact when nothing is missing, else too far to the right
	if i < 0 {
		return nil
	}
	if i < int64(len(live)) && live[i].key == key {
		return &live[i]
	}
	n := min(i, int64(len(live)))
	j := sort.Search(int(n), func(j int) bool { return live[j].key >= key })
	if int64(j) < n && live[j].key == key {
		return &live[j]
	}
	return nil
}

// advance moves the watermark over all that is done and frees the chunks below it.
// Each chunk is freed and moved at most once each, so a call costs O(1) amortised.
func (t *Tracker) advance() {
	watermark := t.next
	for t.head < len(t.chunks) {
		c := &t.chunks[t.head]
		if open := c.received &^ c.done; open != 0 {
			watermark = c.key<<6 + int64(bits.TrailingZeros64(open))
			break
		}
		if t.head == len(t.chunks)-1 && t.next&63 != 0 {
			break // more offsets of this chunk may come
		}
		t.head++
	}
	t.moveTo(watermark)
	if t.head > 64 && t.head*2 >= len(t.chunks) {
		t.chunks = t.chunks[:copy(t.chunks, t.chunks[t.head:])]
		t.head = 0
	}
}

func (t *Tracker) moveTo(watermark int64) {
	if watermark > t.watermark {
		t.watermark = watermark
		t.changes++
	}
}

// Changes grows with everything that a commit would write differently.
func (t *Tracker) Changes() uint64 { return t.changes }
