package retrytopics

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestBacklogTellsWaitingFromOverdueInEveryTierThatExists(t *testing.T) {
	fake := testkit.NewFake(t, testkit.WithTopics(
		testkit.Topic{Name: names.Retry(time.Minute), Partitions: 2},
		testkit.Topic{Name: names.Retry(10 * time.Second), Partitions: 1},
		testkit.Topic{Name: names.Retry(90 * time.Second), Partitions: 1}, // no longer configured
		testkit.Topic{Name: names.Deliveries(), Partitions: 1}))
	cl := fake.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	now := time.Now()
	reader, err := kafka.NewReader(kafka.Config{Brokers: fake.Brokers(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	put := func(tier time.Duration, partition int32, ages ...time.Duration) {
		for _, age := range ages {
			d := schemas.Delivery{EndpointID: "ep", Payload: []byte("x"), Event: schemas.Event{ID: "e", Source: "s"},
				Origin: schemas.Origin{Topic: names.Deliveries()}, HopUntil: now.Add(tier - age)}
			rec := &kgo.Record{Topic: names.Retry(tier), Partition: partition, Key: []byte("ep"), Value: d.Payload,
				Timestamp: now.Add(-age - time.Hour)} // a broker's clock decides nothing
			for _, h := range d.Headers() {
				rec.Headers = append(rec.Headers, kgo.RecordHeader(h))
			}
			testkit.Produce(t, cl, rec)
		}
	}
	// Settled, settled, overdue, may still be in memory, waits.
	put(time.Minute, 0, 5*time.Minute, 4*time.Minute, 3*time.Minute, 65*time.Second, 5*time.Second)
	put(time.Minute, 1, 3*time.Minute, 3*time.Minute)
	put(10*time.Second, 0, time.Second)
	adm := kadm.NewClient(cl)
	var commits kadm.Offsets
	commits.Add(kadm.Offset{Topic: names.Retry(time.Minute), Partition: 0, At: 2, LeaderEpoch: -1})
	if err := adm.CommitAllOffsets(t.Context(), names.Group("releaser"), commits); err != nil {
		t.Fatal(err)
	}
	got, err := ReadBacklog(t.Context(), adm, reader, names, now)
	if err != nil {
		t.Fatal(err)
	}
	want := []TierBacklog{
		{Topic: names.Retry(10 * time.Second), Delay: 10 * time.Second, Waiting: 1},
		{Topic: names.Retry(time.Minute), Delay: time.Minute, Waiting: 2, Overdue: 3},
		{Topic: names.Retry(90 * time.Second), Delay: 90 * time.Second},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestBacklogOfNoTiersIsEmpty(t *testing.T) {
	fake := testkit.NewFake(t)
	got, err := ReadBacklog(t.Context(), kadm.NewClient(fake.Client()), nil, names, time.Now())
	if err != nil || len(got) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}
