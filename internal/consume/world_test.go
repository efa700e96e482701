package consume

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

const (
	testTopic = "webhooks.deliveries"
	testGroup = "webhooks.dispatcher"
	patience  = 20 * time.Second
)

// world is a cluster, a producer and the law: it sees every OffsetCommit.
type world struct {
	t        testing.TB
	fake     *testkit.Fake // nil for a real cluster
	brokers  []string
	producer *kgo.Client
	log      *testkit.LogCapture

	mu         sync.Mutex
	committed  map[Partition]int64
	generation int32
	back       []string
	produced   int
}

func newWorld(t testing.TB, partitions int32, opts ...testkit.FakeOption) *world {
	w := &world{t: t, committed: make(map[Partition]int64), log: testkit.NewLogCapture(t)}
	w.fake = testkit.NewFake(t, append(opts, testkit.WithTopics(testkit.Topic{Name: testTopic, Partitions: partitions}))...)
	w.brokers = w.fake.Brokers()
	w.producer = w.fake.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	w.fake.Observe(8, func(req kmsg.Request) { w.sawCommit(req.(*kmsg.OffsetCommitRequest)) })
	return w
}

// sawCommit holds invariant 3: whatever any member sends, an offset never falls. A
// request of a generation that has passed is refused by the broker and does not count.
func (w *world) sawCommit(req *kmsg.OffsetCommitRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if req.Generation < w.generation {
		return
	}
	w.generation = req.Generation
	for _, t := range req.Topics {
		topic := t.Topic
		if topic == "" {
			topic = testTopic
		}
		for _, p := range t.Partitions {
			at := Partition{topic, p.Partition}
			if last, ok := w.committed[at]; ok && p.Offset < last {
				w.back = append(w.back, fmt.Sprintf("%s/%d %d → %d (generation %d, %s)", topic, p.Partition, last, p.Offset, req.Generation, req.MemberID))
			}
			w.committed[at] = p.Offset
		}
	}
}

func (w *world) produce(partition int32, n int) {
	w.t.Helper()
	recs := make([]*kgo.Record, n)
	for i := range recs {
		w.produced++
		recs[i] = &kgo.Record{Topic: testTopic, Partition: partition, Value: binary.BigEndian.AppendUint64(nil, uint64(w.produced))}
	}
	testkit.Produce(w.t, w.producer, recs...)
}

// commit returns what the group coordinator holds.
func (w *world) commit(partition int32) (kadm.Offset, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience*patience)
	defer cancel()
	got, err := kadm.NewClient(w.producer).FetchOffsets(ctx, testGroup)
	if err != nil {
		return kadm.Offset{}, err
	}
	o, ok := got.Lookup(testTopic, partition)
	if !ok {
		return kadm.Offset{At: -1}, nil
	}
	return o.Offset, o.Err
}

func (w *world) awaitCommit(partition int32, offset int64) {
	w.t.Helper()
	testkit.Eventually(w.t, patience, func() string {
		got, err := w.commit(partition)
		if err != nil || got.At != offset {
			return fmt.Sprintf("partition %d is committed at %d, want %d (%v)", partition, got.At, offset, err)
		}
		return ""
	})
}

// check is called at the end of each test.
func (w *world) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.back {
		w.t.Errorf("a commit moved back: %s", s)
	}
}

// taken is one record that an intake was handed.
type taken struct {
	a   *Assignment
	rec schemas.Record
}

// quiet keeps kgo's debug lines out of the capture.
type quiet struct{ slog.Handler }

func (quiet) Enabled(_ context.Context, l slog.Level) bool { return l > slog.LevelInfo }

// member is a Loop whose records come out of a channel, for the test to settle.
type member struct {
	t      testing.TB
	loop   *Loop
	cancel context.CancelFunc
	ended  chan struct{}
	err    error

	mu      sync.Mutex
	records []taken
	open    map[*Assignment]map[int64]bool
	drains  int
	onDrain func(ctx context.Context, a *Assignment)
	onTake  func(ctx context.Context, a *Assignment, recs []schemas.Record)
}

func (w *world) config() Config {
	return Config{
		Kafka: kafka.Config{Brokers: w.brokers, Logger: slog.New(quiet{w.log})}, Logger: w.log.Logger(),
		Group: testGroup, Topics: []string{testTopic}, InitialOffset: InitialEarliest,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: 100 * time.Millisecond,
		CommitInterval: 20 * time.Millisecond, WatchInterval: 100 * time.Millisecond,
		FetchMaxWait: 50 * time.Millisecond, DrainBudget: 5 * time.Second, RevokeBudget: time.Second,
	}
}

// join starts a member. change may be nil.
func (w *world) join(change func(*Config, *member)) *member {
	w.t.Helper()
	m := &member{t: w.t, ended: make(chan struct{}), open: make(map[*Assignment]map[int64]bool)}
	cfg := w.config()
	cfg.Start = func(a *Assignment) Intake { return &testIntake{m: m, a: a} }
	if change != nil {
		change(&cfg, m)
	}
	loop, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	m.loop = loop
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		defer close(m.ended)
		m.err = loop.Run(ctx)
	}()
	w.t.Cleanup(m.leave)
	return m
}

// leave ends the member and waits for it.
func (m *member) leave() {
	m.cancel()
	<-m.ended
}

type testIntake struct {
	m *member
	a *Assignment
}

func (i *testIntake) Take(ctx context.Context, recs []schemas.Record) {
	i.m.mu.Lock()
	for _, r := range recs {
		i.m.records = append(i.m.records, taken{i.a, r})
	}
	f := i.m.onTake
	i.m.mu.Unlock()
	if f != nil {
		f(ctx, i.a, recs)
	}
}

func (i *testIntake) Drain(ctx context.Context) {
	i.m.mu.Lock()
	i.m.drains++
	f := i.m.onDrain
	i.m.mu.Unlock()
	if f != nil {
		f(ctx, i.a)
	}
}

func (m *member) got() []taken {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]taken(nil), m.records...)
}

// await waits for n records in all.
func (m *member) await(n int) []taken {
	m.t.Helper()
	testkit.Eventually(m.t, patience, func() string {
		if got := len(m.got()); got < n {
			return fmt.Sprintf("%d records were handed over, want %d; ready: %v", got, n, m.loop.Ready())
		}
		return ""
	})
	return m.got()
}
