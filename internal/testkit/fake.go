package testkit

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topic is a topic that a test wants to have.
type Topic struct {
	Name       string
	Partitions int32
	// Configs are topic configurations. retention.ms is overwritten with -1:
	// the embedded broker applies retention to compacted topics too, and one
	// batch with an old timestamp would delete everything before it.
	Configs map[string]string
}

// Fake is an embedded Kafka cluster (franz-go's kfake) for one test. Its
// methods are not safe for concurrent use with Stop and Restart.
type Fake struct {
	t        testing.TB
	cluster  *kfake.Cluster // nil while stopped
	opts     []kfake.Opt
	dataDir  string
	brokers  int
	topics   []Topic
	addrs    []string
	ports    []int // of a cluster that is restarted: reserved, so that they are still there then
	observed []observer
}

type observer struct {
	key int16
	fn  func(kmsg.Request)
}

// FakeOption changes how NewFake builds the cluster.
type FakeOption func(*Fake)

// WithDataDir keeps the cluster's data in dir, so that it survives Stop and
// Restart. An empty dir means a temporary one of the test.
func WithDataDir(dir string) FakeOption {
	return func(f *Fake) {
		if dir == "" {
			dir = f.t.TempDir()
		}
		f.dataDir = dir
	}
}

// WithBrokers sets the number of brokers, 1 by default.
func WithBrokers(n int) FakeOption { return func(f *Fake) { f.brokers = n } }

// WithTopics creates topics at the start.
func WithTopics(topics ...Topic) FakeOption {
	return func(f *Fake) { f.topics = append(f.topics, topics...) }
}

// WithKfake passes options on to kfake, such as kfake.ListenFn for its virtual
// network inside a synctest bubble.
func WithKfake(opts ...kfake.Opt) FakeOption {
	return func(f *Fake) { f.opts = append(f.opts, opts...) }
}

// NewFake starts a cluster on free loopback ports, with retention off and a
// lowest group session timeout of 100 ms. It ends with the test.
func NewFake(t testing.TB, opts ...FakeOption) *Fake {
	t.Helper()
	f := &Fake{t: t, brokers: 1}
	for _, o := range opts {
		o(f)
	}
	if f.dataDir != "" {
		for range f.brokers {
			f.ports = append(f.ports, ReservePort(t))
		}
	}
	f.start()
	t.Cleanup(f.Stop)
	f.CreateTopics(f.topics...)
	return f
}

func (f *Fake) start() {
	f.t.Helper()
	opts := []kfake.Opt{
		kfake.NumBrokers(f.brokers),
		kfake.GroupMinSessionTimeout(100 * time.Millisecond),
		kfake.BrokerConfigs(map[string]string{"log.retention.ms": "-1"}),
	}
	if f.dataDir != "" {
		opts = append(opts, kfake.DataDir(f.dataDir))
	}
	opts = append(opts, f.opts...)
	if f.ports != nil {
		opts = append(opts, kfake.Ports(f.ports...))
	}
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		f.t.Fatalf("embedded broker: %v", err)
	}
	f.cluster, f.addrs = c, c.ListenAddrs()
	for _, o := range f.observed {
		f.register(o)
	}
}

// Brokers returns the addresses to give to a client. They stay the same over Restart.
func (f *Fake) Brokers() []string { return f.addrs }

// Cluster is the running kfake cluster, for what Fake has no method for. It
// fails the test while the cluster is stopped.
func (f *Fake) Cluster() *kfake.Cluster {
	f.t.Helper()
	if f.cluster == nil {
		f.t.Fatal("embedded broker: used while it is stopped")
	}
	return f.cluster
}

// CreateTopics creates topics with retention off. A topic that exists already
// fails the test.
func (f *Fake) CreateTopics(topics ...Topic) {
	f.t.Helper()
	for _, topic := range topics {
		configs := map[string]string{}
		maps.Copy(configs, topic.Configs)
		configs["retention.ms"] = "-1"
		if err := f.Cluster().CreateTopic(topic.Name, topic.Partitions, configs); err != nil {
			f.t.Fatalf("embedded broker: create topic %s: %v", topic.Name, err)
		}
	}
}

// Control passes fn to kfake's Control of the running cluster; a Restart forgets it.
func (f *Fake) Control(fn func(kmsg.Request) (kmsg.Response, error, bool)) {
	f.Cluster().Control(fn)
}

// ControlKey passes fn to kfake's ControlKey of the running cluster; a Restart forgets it.
func (f *Fake) ControlKey(key int16, fn func(kmsg.Request) (kmsg.Response, error, bool)) {
	f.Cluster().ControlKey(key, fn)
}

// Observe calls fn for every request with that key (-1: all), before it is
// handled as usual, also after a Restart. fn runs on the cluster's goroutine:
// it must not block, nor call the cluster.
func (f *Fake) Observe(key int16, fn func(kmsg.Request)) {
	o := observer{key, fn}
	f.observed = append(f.observed, o)
	if f.cluster != nil {
		f.register(o)
	}
}

func (f *Fake) register(o observer) {
	f.cluster.ControlKey(o.key, func(req kmsg.Request) (kmsg.Response, error, bool) {
		o.fn(req)
		return nil, nil, false
	})
}

// Stop closes the cluster: connections break and its ports refuse. It does
// nothing on a stopped cluster.
func (f *Fake) Stop() {
	if f.cluster != nil {
		f.cluster.Close()
		f.cluster = nil
	}
}

// Restart starts a stopped (or running) cluster again on the same ports with
// the same data. It needs WithDataDir.
func (f *Fake) Restart() {
	f.t.Helper()
	if f.dataDir == "" {
		f.t.Fatal("embedded broker: Restart without WithDataDir would lose everything")
	}
	f.Stop()
	f.start()
}

// Client makes a client of the cluster that ends with the test.
func (f *Fake) Client(opts ...kgo.Opt) *kgo.Client {
	f.t.Helper()
	return NewClient(f.t, f.addrs, opts...)
}

// NewClient makes a client of any cluster that ends with the test. Records
// keep the partition that the caller sets when it passes a manual partitioner.
func NewClient(t testing.TB, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...)}, opts...)...)
	if err != nil {
		t.Fatalf("kafka client: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// Produce writes records and waits for all acknowledgements; an error fails the test.
func Produce(t testing.TB, c *kgo.Client, recs ...*kgo.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience*time.Minute)
	defer cancel()
	if err := c.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		t.Fatalf("produce: %v", err)
	}
}
