package app

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
