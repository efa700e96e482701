package dispatcher

import (
	"context"
	"maps"
	"strconv"
	"sync"

	"github.com/milena-project/milena/schemas"
)

// memoryHold is hold and health of partition 0, in memory. Acks come in order from
// one goroutine, as the writer's do.
type memoryHold struct {
	mu       sync.Mutex
	offset   int64 // of health
	claims   []schemas.Claim
	hold     []schemas.Record
	health   map[string]schemas.Health
	writes   int  // of health
	stall    bool // acks wait
	acks     []func()
	acking   bool
	readFrom int // bytes read
}

func (m *memoryHold) TakeOver(context.Context, int32, func() bool) (Takeover, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.claims = append(m.claims, schemas.Claim{Number: m.offset, HoldEnd: int64(len(m.hold))})
	m.offset++
	return Takeover{Claim: m.offset - 1, Claims: append([]schemas.Claim(nil), m.claims...), Health: maps.Clone(m.health)}, nil
}

func (m *memoryHold) Append(_ int32, claim int64, d *schemas.Delivery, acked func(int64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	offset := int64(len(m.hold))
	held := *d
	held.Claim = claim
	m.hold = append(m.hold, schemas.Record{
		Topic: "webhooks.hold", Offset: offset, Key: []byte(d.EndpointID), Value: d.Payload, Headers: held.Headers(), Timestamp: d.Enqueued,
	})
	m.ack(func() { acked(offset) })
}

func (m *memoryHold) WriteHealth(_ int32, claim int64, id string, h *schemas.Health, acked func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.offset++
	m.writes++
	m.ack(func() {
		m.mu.Lock()
		if last := m.claims[len(m.claims)-1].Number; claim != last {
			// ignored by readers
		} else if h == nil {
			delete(m.health, id)
		} else {
			m.health[id] = *h
		}
		m.mu.Unlock()
		acked()
	})
}

// ack queues an acknowledgement; they run one after another.
func (m *memoryHold) ack(f func()) {
	m.acks = append(m.acks, f)
	if m.acking || m.stall {
		return
	}
	m.acking = true
	go m.run()
}

func (m *memoryHold) run() {
	for {
		m.mu.Lock()
		if len(m.acks) == 0 || m.stall {
			m.acking = false
			m.mu.Unlock()
			return
		}
		f := m.acks[0]
		m.acks = m.acks[1:]
		m.mu.Unlock()
		f()
	}
}

// stalled stops or lets go of all acknowledgements.
func (m *memoryHold) stalled(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stall = yes
	if !yes && !m.acking && len(m.acks) > 0 {
		m.acking = true
		go m.run()
	}
}

func (m *memoryHold) ReadHold(_ context.Context, _ int32, from int64, limit int) (HoldChunk, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := HoldChunk{Next: from}
	for ; c.Next < int64(len(m.hold)) && c.Bytes < limit; c.Next++ {
		rec := m.hold[c.Next]
		c.Bytes += len(rec.Value) + 100
		c.Records = append(c.Records, rec)
	}
	m.readFrom += c.Bytes
	return c, nil
}

// bodies are the payloads that stand on hold, in order.
func (m *memoryHold) bodies() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, r := range m.hold {
		all = append(all, string(r.Value))
	}
	return all
}

func (m *memoryHold) healthOf(id string) (schemas.Health, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.health[id]
	return h, ok
}

func numbers(from, to int) []string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, strconv.Itoa(i))
	}
	return all
}
