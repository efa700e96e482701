// Package publish writes events to the deliveries topic as a producer does: with
// CloudEvents headers, acks=all, keyed by endpoint id and in the endpoint's
// partition. An event without an endpoint is fanned out at once to every endpoint
// that subscribes to it, as the router does with a source topic.
//
// `milena send`, `endpoint test` and internal/devmode call it.
package publish

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// Source is ce_source of events that come from the command line without another.
const Source = "/milena/send"

// Writer is the part of kafka.Writer that is needed.
type Writer interface {
	Write(m kafka.Message, done func(kafka.Written))
}

// Publisher writes events. It is safe for concurrent use.
type Publisher struct {
	Writer Writer
	Names  schemas.Names
	Topic  kafka.Layout // of deliveries
}

// Sent is one record that a broker acknowledged.
type Sent struct {
	MessageID  string `json:"message_id"`
	EventID    string `json:"event_id"`
	EndpointID string `json:"endpoint_id"`
	DeliveryID string `json:"delivery_id"`
	Partition  int32  `json:"partition"`
	Offset     int64  `json:"offset"`
}

// NewID makes an event id that nobody else has.
func NewID() string { return "evt_" + rand.Text() }

// Send writes one event for each of the endpoints and waits until all records are
// acknowledged or ctx ends. Id and source are set where they are missing; with two
// endpoints both records carry the same, so they have one message id.
func (p *Publisher) Send(ctx context.Context, ev schemas.Event, payload []byte, endpoints ...string) ([]Sent, error) {
	complete(&ev)
	var wait sync.WaitGroup
	sent := make([]Sent, len(endpoints))
	errs := make([]error, len(endpoints))
	for i, id := range endpoints {
		wait.Add(1)
		p.Start(ev, payload, id, func(s Sent, err error) {
			sent[i], errs[i] = s, err
			wait.Done()
		})
	}
	acked := make(chan struct{})
	go func() { wait.Wait(); close(acked) }()
	select {
	case <-acked:
		return sent, errors.Join(errs...)
	case <-ctx.Done():
		return nil, fmt.Errorf("no acknowledgement from Kafka: %w; the record may have been written all the same", context.Cause(ctx))
	}
}

// Start writes one record and calls done once, when it was acknowledged or
// refused. ev must have its id and source.
func (p *Publisher) Start(ev schemas.Event, payload []byte, endpoint string, done func(Sent, error)) {
	if payload == nil {
		payload = []byte{} // null would be a tombstone
	}
	d := schemas.Delivery{EndpointID: endpoint, Event: ev}
	m := kafka.Message{Topic: p.Names.Deliveries(), Partition: kafka.Partition([]byte(endpoint), p.Topic.Partitions),
		Key: []byte(endpoint), Value: payload, Headers: d.Headers()}
	p.Writer.Write(m, func(w kafka.Written) {
		if w.Err != nil {
			done(Sent{}, fmt.Errorf("event %s for endpoint %s: %w", ev.ID, endpoint, w.Err))
			return
		}
		d.Origin = schemas.Origin{Topic: m.Topic, Partition: m.Partition, Offset: w.Offset, TopicID: [4]byte(p.Topic.ID[:4])}
		done(Sent{MessageID: d.MessageID(), EventID: ev.ID, EndpointID: endpoint, DeliveryID: d.ID(), Partition: m.Partition, Offset: w.Offset}, nil)
	})
}

func complete(ev *schemas.Event) {
	if ev.ID == "" {
		ev.ID = NewID()
	}
	if ev.Source == "" {
		ev.Source = Source
	}
	if ev.Type == "" {
		ev.Type = schemas.DefaultEventType
	}
	if ev.SpecVersion == "" {
		ev.SpecVersion = schemas.DefaultSpecVersion
	}
}
