package registry

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// newCluster starts an embedded broker with the topics that this package needs.
func newCluster(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, kafka.Config) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cfg := kafka.Config{Brokers: c.ListenAddrs(), ClientID: "test", Names: schemas.Names{Prefix: schemas.DefaultPrefix}, Logger: testLogger()}
	createTopics(t, cfg)
	return c, cfg
}

func createTopics(t testing.TB, cfg kafka.Config) {
	t.Helper()
	adm := kadm.NewClient(newClient(t, cfg))
	compact, forever := "compact", "-1"
	configs := map[string]*string{"cleanup.policy": &compact, "retention.ms": &forever}
	topics := []string{cfg.Names.Endpoints(), cfg.Names.Runs(), cfg.Names.Audit()}
	for _, topic := range topics {
		if topic == cfg.Names.Audit() {
			configs = nil
		}
		if _, err := adm.CreateTopic(t.Context(), 1, 1, configs, topic); err != nil {
			t.Fatal(err)
		}
	}
	testkit.AwaitTopics(t, cfg.Brokers, topics...)
}

func newClient(t testing.TB, cfg kafka.Config, more ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := cfg.NewClient(append(more, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// follow runs a follower until the test ends and waits until it is ready.
func follow(t testing.TB, cfg kafka.Config, ring *KeyRing, opts FollowerOptions) *Follower {
	t.Helper()
	f := NewFollower(cfg, ring, opts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	waitFor(t, "the follower to be ready", func() bool { return f.Ready() == nil })
	return f
}

// waitFor polls a condition that only another goroutine's progress can bring about.
func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(75 * time.Second) // a machine may be slow
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			t.Fatalf("waited 75 s for %s", what)
		case <-tick.C:
		}
	}
}

func put(t testing.TB, cl *kgo.Client, cfg kafka.Config, ep schemas.Endpoint) {
	t.Helper()
	if ep.State == "" {
		ep.State = schemas.StateEnabled
	}
	value, err := json.Marshal(&ep)
	if err != nil {
		t.Fatal(err)
	}
	produce(t, cl, cfg.Names.Endpoints(), ep.ID, value)
}

func produce(t testing.TB, cl *kgo.Client, topic, key string, value []byte) {
	t.Helper()
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(key), Value: value}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func ringOf(t testing.TB, ids ...string) *KeyRing {
	t.Helper()
	var text string
	for _, id := range ids {
		entry, err := GenerateKey(id)
		if err != nil {
			t.Fatal(err)
		}
		text += entry + "\n"
	}
	ring, err := ParseKeyRing(text)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func sealedSecret(t testing.TB, ring *KeyRing, id, secret string) schemas.Secret {
	t.Helper()
	sealed, err := ring.Seal(id, secret)
	if err != nil {
		t.Fatal(err)
	}
	return schemas.Secret{Sealed: sealed, CreatedAt: time.Now().UTC()}
}

// testLogger is silent unless the test runs with MILENA_TEST_LOG set.
func testLogger() *slog.Logger {
	if os.Getenv("MILENA_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
