package app

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
)

func TestAProcessEndsWhenThePartitionsAreRaisedWhileItRuns(t *testing.T) {
	key, err := registry.GenerateKey("k")
	if err != nil {
		t.Fatal(err)
	}
	fake := testkit.NewFake(t)
	loaded, err := config.Load(config.Options{Environ: []string{"MILENA_KAFKA_BROKERS=" + fake.Brokers()[0], "MILENA_KEYRING=" + key}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := loaded.Config
	cfg.Topics.Partitions = 2
	logs := slog.New(slog.DiscardHandler)
	adm, err := cfg.KafkaConfig(logs).NewAdmin()
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	topics := cfg.TopicsConfig()
	topics.KeepForever = true
	plan, err := kafka.MakePlan(t.Context(), adm, topics)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Apply(t.Context(), adm); err != nil {
		t.Fatal(err)
	}
	a, err := New(cfg, Options{Logger: logs})
	if err != nil {
		t.Fatal(err)
	}
	defer a.closeWriter(t.Context())
	defer a.reader.Close()
	if err := a.lookForDrift(t.Context()); err != nil {
		t.Fatalf("nothing has changed: %v", err)
	}
	raise(t, adm, a.names.Deliveries(), 3)
	// A record that two processes sent on shows it, long before the next look.
	refused := make(chan error, 1)
	go func() { refused <- a.watchDrift(t.Context()) }()
	a.misrouted(false)
	a.misrouted(true)
	select {
	case err := <-refused:
		if err == nil || !strings.Contains(err.Error(), "number of partitions has changed") {
			t.Fatalf("deliveries has three partitions now: %v", err)
		}
	case <-time.After(driftEvery / 2):
		t.Fatal("nobody looked at the topics")
	}
}

func raise(t *testing.T, adm *kadm.Client, topic string, n int) {
	t.Helper()
	answers, err := adm.UpdatePartitions(t.Context(), n, topic)
	if err != nil {
		t.Fatal(err)
	}
	if err := answers.Error(); err != nil {
		t.Fatal(err)
	}
}
