package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// effects are the dispatcher's writes on Kafka.
type effects struct {
	writer     *kafka.Writer
	names      schemas.Names
	partitions int32 // of deliveries, hold, dlq, attempts and health alike
	log        *slog.Logger

	noticePartitions int32
	buried           func(schemas.Reason) // hears of every dead letter that is durable
	refused          *refusals
}

// refusals are topics that take less than Milena's own records need. What waits for
// such a record waits until the topic is mended and the process starts again, so the
// process is not ready, and says why.
type refusals struct {
	mu     sync.Mutex
	topics map[string]string // what was refused last, by topic
}

func (r *refusals) note(topic, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.topics == nil {
		r.topics = map[string]string{}
	}
	r.topics[topic] = what
}

// err names every topic that refused something; nil: none has.
func (r *refusals) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []error
	for _, topic := range slices.Sorted(maps.Keys(r.topics)) {
		all = append(all, fmt.Errorf("%s refused %s as too large: raise its max.message.bytes (milena topics plan shows to what) and start again", topic, r.topics[topic]))
	}
	return errors.Join(all...)
}

// PartitionOf is the partition of an endpoint in every topic that is keyed by it.
func (e *effects) PartitionOf(endpointID string) int32 {
	return kafka.Partition([]byte(endpointID), e.partitions)
}

// Forward writes a misrouted delivery where its endpoint's records belong.
func (e *effects) Forward(d *schemas.Delivery, acked func()) {
	e.write(e.delivery(d), acked, func() { e.DeadLetter(d, schemas.ReasonTooLarge, acked) })
}

// delivery is d as a record of deliveries.
func (e *effects) delivery(d *schemas.Delivery) kafka.Message {
	return kafka.Message{
		Topic: e.names.Deliveries(), Partition: e.PartitionOf(d.EndpointID),
		Key: []byte(d.EndpointID), Value: d.Payload, Headers: d.Headers(),
	}
}

// DeadLetter buries a delivery that came to no attempt here.
func (e *effects) DeadLetter(d *schemas.Delivery, reason schemas.Reason, acked func()) {
	l := schemas.NewLetter(*d, reason, time.Now())
	e.Bury(&l, acked)
}

// Bury writes a dead letter. One that is too large even so loses its payload and
// says so; everything else of it is kept.
func (e *effects) Bury(l *schemas.Letter, acked func()) {
	reason, done := l.Reason, acked
	acked = func() {
		e.buried(reason)
		done()
	}
	e.write(e.letter(l), acked, func() {
		e.log.Error("dead letter is larger than its topic takes; written without its payload",
			"delivery_id", l.ID(), "bytes", len(l.Payload))
		short := *l
		short.OmitPayload()
		e.write(e.letter(&short), acked, func() {
			e.refused.note(e.names.DLQ(), "a dead letter without its payload")
			e.log.Error("dead letter is larger than its topic takes even without its payload", "delivery_id", l.ID())
		})
	})
}

func (e *effects) letter(l *schemas.Letter) kafka.Message {
	rec := l.Record()
	return kafka.Message{
		Topic: e.names.DLQ(), Partition: e.PartitionOf(l.EndpointID),
		Key: rec.Key, Value: rec.Value, Headers: rec.Headers,
	}
}

// attemptSize is about what the record of a delivered attempt takes, in bytes.
const attemptSize = 768

// LogAttempt appends to the delivery log.
func (e *effects) LogAttempt(a *schemas.Attempt, acked func()) {
	id := a.DeliveryID
	e.write(kafka.Message{
		Topic: e.names.Attempts(), Partition: e.PartitionOf(a.EndpointID),
		Key: []byte(a.EndpointID), Value: schemas.AppendAttempt(make([]byte, 0, attemptSize), a),
	}, acked, func() {
		// At most 8 KiB: only a topic configured smaller than that refuses it, and
		// deliveries must not stop for their log.
		e.log.Error("attempt record refused as too large", "delivery_id", id)
		acked()
	})
}

// write calls acked when m is durable, or tooLarge. When the writer is closed
// first neither is called, so the offset that waits for it stays open.
func (e *effects) write(m kafka.Message, acked, tooLarge func()) {
	e.writer.Write(m, func(w kafka.Written) {
		switch {
		case w.Err == nil:
			acked()
		case errors.Is(w.Err, kafka.ErrTooLarge):
			tooLarge()
		}
	})
}

// Notify writes a notice for an endpoint's owner. Its id is its key, so a second
// writing of it replaces nothing but itself.
func (e *effects) Notify(n *schemas.Notice, acked func()) {
	value, err := json.Marshal(n)
	if err != nil { // texts and times: it cannot
		e.log.Error("notice cannot be written", "endpoint_id", n.EndpointID, "err", err)
		return
	}
	key := []byte(n.ID)
	e.write(kafka.Message{
		Topic: e.names.Notices(), Partition: kafka.Partition(key, e.noticePartitions), Key: key, Value: value,
	}, acked, func() {
		// Its owner is not told; nothing waits for it.
		e.refused.note(e.names.Notices(), "a notice")
		e.log.Error("notice refused as too large", "endpoint_id", n.EndpointID)
	})
}
