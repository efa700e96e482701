package publish

import (
	"context"
	"errors"
	"testing"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestMain(m *testing.M) { testkit.VerifyMain(m) }

// log keeps what was written, and acknowledges unless silent.
type log struct {
	records []kafka.Message
	silent  bool
	pending []func(kafka.Written)
	err     error
}

func (l *log) Write(m kafka.Message, done func(kafka.Written)) {
	l.records = append(l.records, m)
	if l.silent {
		l.pending = append(l.pending, done)
		return
	}
	done(kafka.Written{Offset: int64(len(l.records) - 1), Err: l.err})
}

func publisher(l *log) *Publisher {
	return &Publisher{Writer: l, Names: schemas.Names{Prefix: "w."}, Topic: kafka.Layout{ID: [16]byte{1, 2, 3, 4, 5}, Partitions: 12}}
}

func TestAFanOutIsOneEventForEachEndpoint(t *testing.T) {
	l := &log{}
	sent, err := publisher(l).Send(context.Background(), schemas.Event{Type: "a.b", Tenant: "t"}, []byte("{}"), "one", "two")
	if err != nil || len(sent) != 2 || sent[0].MessageID != sent[1].MessageID {
		t.Fatal(sent, err)
	}
	for i, m := range l.records {
		d, err := schemas.ParseDelivery(schemas.Record{Topic: m.Topic, TopicID: [16]byte{1, 2, 3, 4}, Partition: m.Partition, Offset: int64(i),
			Key: m.Key, Value: m.Value, Headers: m.Headers})
		if err != nil {
			t.Fatal(err)
		}
		if d.ID() != sent[i].DeliveryID || d.MessageID() != sent[i].MessageID || d.Event.Type != "a.b" || d.Event.Tenant != "t" || d.Event.Source != Source {
			t.Errorf("%+v was sent as %+v", d, sent[i])
		}
		if m.Partition != kafka.Partition(m.Key, 12) {
			t.Errorf("%s in partition %d", m.Key, m.Partition)
		}
	}
}

func TestAnEmptyPayloadIsNoTombstone(t *testing.T) {
	l := &log{}
	if _, err := publisher(l).Send(context.Background(), schemas.Event{}, nil, "one"); err != nil || l.records[0].Value == nil {
		t.Fatal(err, l.records)
	}
}

func TestARefusedRecordAndASilentBrokerAreErrors(t *testing.T) {
	_, err := publisher(&log{err: kafka.ErrTooLarge}).Send(context.Background(), schemas.Event{}, nil, "one")
	if !errors.Is(err, kafka.ErrTooLarge) {
		t.Error(err)
	}
	l := &log{silent: true}
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("time is up")
	cancel(cause)
	if _, err := publisher(l).Send(ctx, schemas.Event{}, nil, "one"); !errors.Is(err, cause) {
		t.Error(err)
	}
	for _, done := range l.pending {
		done(kafka.Written{Err: kafka.ErrClosed})
	}
}
