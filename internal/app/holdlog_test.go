package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestMain(m *testing.M) { testkit.VerifyMain(m) }

// Somebody raises the partitions of deliveries while processes run: they get a
// partition that has no hold and no health.
func TestAPartitionWithoutHoldOrHealthIsNotTakenOver(t *testing.T) {
	for _, short := range []string{"webhooks.health", "webhooks.hold"} {
		fake := testkit.NewFake(t)
		for _, topic := range []string{"webhooks.health", "webhooks.hold"} {
			n := int32(2)
			if topic == short {
				n = 1
			}
			fake.CreateTopics(testkit.Topic{Name: topic, Partitions: n})
		}
		reader, err := kafka.NewReader(kafka.Config{Brokers: fake.Brokers()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(reader.Close)
		h := &holdLog{effects: effects{names: schemas.Names{Prefix: "webhooks."}}, reader: reader}
		_, err = h.TakeOver(context.Background(), 1, func() bool { return true })
		if err == nil || !strings.Contains(err.Error(), short+" has 1 partitions") || !strings.Contains(err.Error(), "raise all topics") {
			t.Errorf("%s: %v", short, err)
		}
	}
}

// A topic that takes less than our own records need: whatever waits for one waits, and
// the process says so.
func TestATopicThatRefusesOurOwnRecordsMakesTheProcessNotReady(t *testing.T) {
	fake := testkit.NewFake(t)
	fake.CreateTopics(testkit.Topic{Name: "webhooks.health", Partitions: 1, Configs: map[string]string{"max.message.bytes": "200"}})
	writer, err := kafka.NewWriter(kafka.Config{Brokers: fake.Brokers()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = writer.Close(context.Background()) })
	var refused refusals
	h := &holdLog{effects: effects{
		writer: writer, names: schemas.Names{Prefix: "webhooks."}, log: slog.New(slog.DiscardHandler), refused: &refused,
	}}
	h.WriteHealth(0, 1, "ep", &schemas.Health{Since: &schemas.Episode{LastError: strings.Repeat("x", 1000)}}, func() { t.Error("acknowledged") })
	testkit.Eventually(t, 30*time.Second, func() string {
		err := refused.err()
		if err == nil || !strings.Contains(err.Error(), "webhooks.health refused a health record as too large: raise its max.message.bytes") {
			return fmt.Sprint(err)
		}
		return ""
	})
}

// What a partition's own broker has is read, whoever else is away: hold is taken over
// partition by partition.
func TestHoldIsReadWhileTheBrokerOfAnotherPartitionIsAway(t *testing.T) {
	fake := testkit.NewFake(t, testkit.WithBrokers(2), testkit.WithTopics(testkit.Topic{Name: "webhooks.hold", Partitions: 2}))
	cluster := fake.Cluster()
	if err := errors.Join(cluster.MoveTopicPartition("webhooks.hold", 0, 0), cluster.MoveTopicPartition("webhooks.hold", 1, 1)); err != nil {
		t.Fatal(err)
	}
	fake.ControlKey(kmsg.ListOffsets.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if cluster.CurrentNode() == 1 {
			return nil, errors.New("the broker is away"), true // the connection is cut
		}
		return nil, nil, false
	})
	reader, err := kafka.NewReader(kafka.Config{Brokers: fake.Brokers()}, kafka.WithRetryFor(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	h := &holdLog{effects: effects{names: schemas.Names{Prefix: "webhooks."}}, reader: reader}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if chunk, err := h.ReadHold(ctx, 0, 0, 1<<20); err != nil || chunk.Next != 0 {
		t.Errorf("%+v %v", chunk, err)
	}
}
