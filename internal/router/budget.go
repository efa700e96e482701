package router

import (
	"context"
	"sync"
)

// budget bounds the bytes of writes that are not acknowledged yet.
type budget struct {
	limit int64

	mu      sync.Mutex
	used    int64
	waiting bool          // somebody waits on room
	room    chan struct{} // closed when there may be room, and made anew
}

func newBudget(limit int64) *budget { return &budget{limit: limit, room: make(chan struct{})} }

// acquire blocks until n more bytes fit, or nothing else is in flight; false when ctx
// ends first.
func (b *budget) acquire(ctx context.Context, n int64) bool {
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

func (b *budget) release(n int64) {
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
