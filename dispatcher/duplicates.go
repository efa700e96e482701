package dispatcher

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/milena-project/milena/schemas"
)

// attemptKey is (delivery id, generation, attempt), the identity of every internal
// decision. Topic and endpoint are hashed; the rest of the delivery id is exact, so
// two keys meet only when one position of one topic also collides in 64 bits.
type attemptKey struct {
	names      uint64
	offset     int64
	topicID    [4]byte
	partition  int32
	generation int32
	attempt    int32
}

// duplicates remembers the attempts that are queued or in flight and those that
// were POSTed or buried: a second copy of one is dropped. Two maps take turns, so
// an entry lives for between half of age and age, and no more than entries are kept.
type duplicates struct {
	seed maphash.Seed
	half int
	age  time.Duration

	mu       sync.Mutex
	cur, old map[attemptKey]struct{} // guarded by mu
	turned   time.Time               // guarded by mu
}

func newDuplicates(entries int, age time.Duration) *duplicates {
	return &duplicates{
		seed: maphash.MakeSeed(), half: max(1, entries/2), age: age,
		cur: map[attemptKey]struct{}{}, turned: time.Now(),
	}
}

func (m *duplicates) key(d *schemas.Delivery) attemptKey {
	names := maphash.String(m.seed, d.EndpointID)*31 + maphash.String(m.seed, d.Origin.Topic)
	return attemptKey{
		names: names, offset: d.Origin.Offset, topicID: d.Origin.TopicID, partition: d.Origin.Partition,
		generation: int32(d.Generation), attempt: int32(d.Attempt), // both are bounded when they are parsed
	}
}

// claim remembers k and reports whether it was new.
func (m *duplicates) claim(k attemptKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.cur[k]; ok {
		return false
	}
	if _, ok := m.old[k]; ok {
		return false
	}
	if len(m.cur) >= m.half || time.Since(m.turned) > m.age/2 {
		m.old, m.cur, m.turned = m.cur, make(map[attemptKey]struct{}), time.Now()
	}
	m.cur[k] = struct{}{}
	return true
}

// forget lets the same attempt be made again: it was held, forwarded or interrupted.
func (m *duplicates) forget(k attemptKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.cur, k)
	delete(m.old, k)
}
