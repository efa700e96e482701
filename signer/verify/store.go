package verify

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// ClaimState is what a Store says about a message id.
type ClaimState int

const (
	Claimed    ClaimState = iota + 1 // it is the caller's now: handle the message, then Confirm or Release
	InProgress                       // another request with the id is being handled
	Done                             // it was handled before
)

// Store remembers which messages were handled, so that a repeat is not handled
// again. It must be safe for concurrent use, and Claim must be atomic across all
// processes that share it. A persistent store lets a claim go after a while by
// itself, because a process that crashed does not Release.
type Store interface {
	Claim(ctx context.Context, id string) (ClaimState, error)
	Confirm(ctx context.Context, id string) error // it was handled
	Release(ctx context.Context, id string) error // it was not: the next Claim gets it
}

// Defaults of NewMemory.
const (
	DefaultTTL        = 24 * time.Hour
	DefaultMaxEntries = 100_000
)

// ErrStoreFull is a Claim for which there is no room: as many messages are being
// handled as the store holds.
var ErrStoreFull = errors.New("too many messages in progress")

// Memory is a Store for one process. When it is full the oldest handled message is
// forgotten; those in progress never are.
type Memory struct {
	ttl time.Duration
	max int
	now func() time.Time

	mu    sync.Mutex
	byID  map[string]*entry
	order list.List // of *entry that are done, oldest first
}

type entry struct {
	id    string
	done  bool
	until time.Time
	place *list.Element
}

// NewMemory makes a Memory that remembers handled messages for ttl (0: DefaultTTL)
// and at most limit of them (0: DefaultMaxEntries).
func NewMemory(ttl time.Duration, limit int) *Memory {
	if ttl <= 0 {
		ttl = DefaultTTL
	}
	if limit <= 0 {
		limit = DefaultMaxEntries
	}
	return &Memory{ttl: ttl, max: limit, now: time.Now, byID: map[string]*entry{}}
}

// Claim implements Store.
func (m *Memory) Claim(_ context.Context, id string) (ClaimState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for front := m.order.Front(); front != nil && !now.Before(front.Value.(*entry).until); front = m.order.Front() {
		m.forget(front.Value.(*entry))
	}
	if e, ok := m.byID[id]; ok {
		if e.done {
			return Done, nil
		}
		return InProgress, nil
	}
	if len(m.byID) >= m.max {
		front := m.order.Front()
		if front == nil {
			return 0, ErrStoreFull
		}
		m.forget(front.Value.(*entry))
	}
	m.byID[id] = &entry{id: id}
	return Claimed, nil
}

// Confirm implements Store.
func (m *Memory) Confirm(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.byID[id]; ok && !e.done {
		e.done, e.until = true, m.now().Add(m.ttl)
		e.place = m.order.PushBack(e)
	}
	return nil
}

// Release implements Store.
func (m *Memory) Release(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.byID[id]; ok && !e.done {
		m.forget(e)
	}
	return nil
}

func (m *Memory) forget(e *entry) {
	delete(m.byID, e.id)
	if e.place != nil {
		m.order.Remove(e.place)
	}
}
