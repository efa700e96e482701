// Package budget bounds the bytes of what was begun and has not ended, such as
// writes that are not acknowledged yet. It promises that what waits for room goes on
// when there is some, and that something larger than the bound goes alone.
//
// The router and the releaser call it.
package budget

import (
	"context"
	"sync"
)

// Budget is a number of bytes that is shared. Make it with New. It is safe for
// concurrent use.
type Budget struct {
	limit int64

	mu      sync.Mutex
	used    int64
	waiting bool          // somebody waits on room
	room    chan struct{} // closed when there may be room, and made anew
}

// New returns a budget of limit bytes.
func New(limit int64) *Budget { return &Budget{limit: limit, room: make(chan struct{})} }

// Acquire blocks until n more bytes fit, or nothing else is in flight. It returns
// false, and has taken nothing, where ctx ends first.
func (b *Budget) Acquire(ctx context.Context, n int64) bool {
	for {
		b.mu.Lock()
		if b.used == 0 || b.used+n <= b.limit {
			b.used += n
			b.mu.Unlock()
			return true
		}
		b.waiting = true
		room := b.room
		b.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
}

// Release gives back what Acquire took.
func (b *Budget) Release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	full := b.used > b.limit/2
	b.used -= n
	// Waking at half and at nothing spares a wake-up for every acknowledgement;
	// nothing is missed, because all bytes come back in the end.
	if b.waiting && (full && b.used <= b.limit/2 || b.used == 0) {
		b.waiting = false
		close(b.room)
		b.room = make(chan struct{})
	}
}
