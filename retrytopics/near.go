package retrytopics

import (
	"container/heap"
	"sync"
	"time"

	"github.com/milena-project/milena/schemas"
)

// held is a delivery that waits in memory for the last seconds.
type held struct {
	due    int64 // unix ms
	size   int64 // bytes that count against the bound
	span   *span
	offset int64
	d      *schemas.Delivery
}

type heldHeap []held

func (h heldHeap) Len() int           { return len(h) }
func (h heldHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h heldHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heldHeap) Push(x any)        { *h = append(*h, x.(held)) }
func (h *heldHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = held{} // lets the delivery go
	*h = old[:len(old)-1]
	return last
}

// near holds what is due within Near, soonest first, of all partitions together and
// bounded in bytes. It is safe for concurrent use; takeDue has one caller.
type near struct {
	limit int64

	mu     sync.Mutex
	items  heldHeap
	bytes  int64
	room   chan struct{} // closed when bytes shrank, and made anew
	sooner chan struct{} // holds one token when the soonest changed
}

func newNear(limit int64) *near {
	return &near{limit: limit, room: make(chan struct{}), sooner: make(chan struct{}, 1)}
}

// put takes an item in if there is room. If there is none it returns the channel
// that is closed when there may be. One that is larger than the bound goes in alone.
func (n *near) put(it held) (ok bool, room <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bytes > 0 && n.bytes+it.size > n.limit {
		return false, n.room
	}
	n.bytes += it.size
	heap.Push(&n.items, it)
	if n.items[0].due == it.due {
		n.poke()
	}
	return true, nil
}

// poke wakes whoever waits for the soonest item, to look again.
func (n *near) poke() {
	select {
	case n.sooner <- struct{}{}:
	default:
	}
}

// takeDue appends at most max items that are due at now to buf, and says when the
// next one is; a zero time: nothing is held.
func (n *near) takeDue(now time.Time, most int, buf []held) (due []held, next time.Time) {
	ms := now.UnixMilli()
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.items) > 0 && n.items[0].due <= ms && most > 0 {
		it := heap.Pop(&n.items).(held)
		n.bytes -= it.size
		buf = append(buf, it)
		most--
	}
	if len(buf) > 0 {
		n.makeRoom()
	}
	if len(n.items) > 0 {
		next = time.UnixMilli(n.items[0].due)
	}
	return buf, next
}

// takeIf removes and returns all that match. It looks at every item: for revokes
// and clock jumps.
func (n *near) takeIf(match func(*held) bool) (out []held) {
	n.mu.Lock()
	defer n.mu.Unlock()
	kept := n.items[:0]
	for i := range n.items {
		if match(&n.items[i]) {
			n.bytes -= n.items[i].size
			out = append(out, n.items[i])
		} else {
			kept = append(kept, n.items[i])
		}
	}
	clear(n.items[len(kept):])
	n.items = kept
	heap.Init(&n.items)
	if len(out) > 0 {
		n.makeRoom()
	}
	return out
}

func (n *near) makeRoom() {
	close(n.room)
	n.room = make(chan struct{})
}

func (n *near) held() (records int, bytes int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.items), n.bytes
}
