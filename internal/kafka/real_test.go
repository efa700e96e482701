//go:build kafka

package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/internal/testkit/realkafka"
	"github.com/milena-project/milena/schemas"
)

func config(brokers []string) kafka.Config {
	return kafka.Config{Brokers: brokers, Logger: slog.New(slog.DiscardHandler)}
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func admin(t testing.TB, cfg kafka.Config) *kadm.Client {
	t.Helper()
	cl, err := cfg.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}

func writer(t testing.TB, cfg kafka.Config, opts ...kafka.WriterOption) *kafka.Writer {
	t.Helper()
	w, err := kafka.NewWriter(cfg, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = w.Close(ctx)
	})
	return w
}

// writeAll writes and waits for what became of each, by value.
func writeAll(t testing.TB, w *kafka.Writer, topic string, values []string) map[string]kafka.Written {
	t.Helper()
	var mu sync.Mutex
	got := map[string]kafka.Written{}
	for _, v := range values {
		w.Write(kafka.Message{Topic: topic, Value: []byte(v)}, func(r kafka.Written) {
			mu.Lock()
			defer mu.Unlock()
			got[v] = r
		})
	}
	if err := w.Flush(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	return got
}

func numbers(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("%06d", i))
	}
	return out
}

// brokerOf is the shared broker where any version will do.
func brokerOf(t *testing.T, version string) *realkafka.Cluster {
	t.Helper()
	if version == "" {
		return realkafka.Shared(t)
	}
	return realkafka.Start(t, realkafka.Config{Version: version})
}

func TestRealBrokerHasWhatApplyMakes(t *testing.T) {
	for _, version := range []string{"", "3.9.1"} {
		t.Run("version "+version, func(t *testing.T) {
			c := brokerOf(t, version)
			cfg := config(c.Brokers())
			topics := kafka.TopicsConfig{Names: schemas.Names{Prefix: fmt.Sprintf("plan%d.", time.Now().UnixNano())}}
			adm := admin(t, cfg)
			ctx := within(t, 2*time.Minute)
			p, err := kafka.MakePlan(ctx, adm, topics)
			if err != nil {
				t.Fatal(err)
			}
			a, err := p.Apply(ctx, adm)
			if err != nil || !a.Complete() {
				t.Fatalf("%v\n%s", err, a)
			}
			if p, err = kafka.MakePlan(ctx, adm, topics); err != nil || !p.Empty() {
				t.Fatalf("%v\n%s", err, p)
			}
			cl, err := cfg.NewClient()
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			got, err := kafka.Check(ctx, cl, topics, kafka.RoleDispatcher, kafka.RoleReleaser, kafka.RoleRouter)
			if err != nil || got.Partitions != 12 || len(got.Tiers) != 9 {
				t.Fatalf("%+v %v", got, err)
			}
			short := "60000"
			if _, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &short}}, topics.Names.Retry(24*time.Hour)); err != nil {
				t.Fatal(err)
			}
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for err == nil { // brokers learn of it a little later
				select {
				case <-tick.C:
					_, err = kafka.Check(ctx, cl, topics)
				case <-ctx.Done():
					t.Fatal("a tier that deletes early passed")
				}
			}
			if !strings.Contains(err.Error(), "retention.ms is 60000 (1m0s), must be at least 950400000 (264h0m0s)") {
				t.Fatal(err)
			}
			if p, err = kafka.MakePlan(ctx, adm, topics); err != nil || len(p.Differences) != 1 {
				t.Fatalf("%v\n%s", err, p)
			}
			if a, err := p.Apply(ctx, adm); err != nil || !a.Complete() {
				t.Fatalf("%v\n%s", err, a)
			}
			if _, err := kafka.Check(ctx, cl, topics); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestRealBrokerRefusesOnlyWhatIsTooLarge(t *testing.T) {
	c := realkafka.Shared(t)
	cfg := config(c.Brokers())
	adm := admin(t, cfg)
	topic := fmt.Sprintf("small%d", time.Now().UnixNano())
	limit := "20000"
	if _, err := adm.CreateTopic(within(t, time.Minute), 1, 1, map[string]*string{"max.message.bytes": &limit}, topic); err != nil {
		t.Fatal(err)
	}
	testkit.AwaitTopics(t, c.Brokers(), topic)
	values := numbers(0, 2000)
	for i := range values {
		values[i] += strings.Repeat("x", 500)
	}
	values[700] += strings.Repeat("y", 30000)
	w := writer(t, cfg, kafka.WithCompression(kgo.NoCompression()))
	for v, r := range writeAll(t, w, topic, values) {
		if big := len(v) > 20000; big != errors.Is(r.Err, kafka.ErrTooLarge) || !big && r.Err != nil {
			t.Errorf("%.6s: %v", v, r.Err)
		}
	}
	r, err := kafka.NewReader(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ends, err := r.Ends(within(t, time.Minute), topic)
	if err != nil || ends[0] != 1999 {
		t.Fatalf("ends %v %v", ends, err)
	}
	n := 0
	if err := r.ReadBackwards(within(t, time.Minute), topic, 0, 0, ends[0], 100_000, func(recs []schemas.Record) error {
		n += len(recs)
		return nil
	}); err != nil || n != 1999 {
		t.Fatalf("%d records backwards, %v", n, err)
	}
}

func TestRealTopicThatIsRecreatedIsWrittenAgain(t *testing.T) {
	c := realkafka.Shared(t)
	cfg := config(c.Brokers())
	adm := admin(t, cfg)
	topic := fmt.Sprintf("again%d", time.Now().UnixNano())
	create := func() {
		t.Helper()
		if _, err := adm.CreateTopic(within(t, time.Minute), 1, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
		testkit.AwaitTopics(t, c.Brokers(), topic)
	}
	create()
	w := writer(t, cfg)
	writeAll(t, w, topic, numbers(0, 10))
	if _, err := adm.DeleteTopic(within(t, time.Minute), topic); err != nil {
		t.Fatal(err)
	}
	testkit.AwaitNoTopics(t, c.Brokers(), topic)
	late := make(chan kafka.Written, 1)
	w.Write(kafka.Message{Topic: topic, Value: []byte("late")}, func(r kafka.Written) { late <- r })
	for w.BlockedSince().IsZero() {
		select {
		case r := <-late:
			t.Fatalf("a topic that is gone took a record: %+v", r)
		case <-time.After(10 * time.Millisecond):
		}
	}
	create()
	select {
	case r := <-late:
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	case <-time.After(time.Minute):
		t.Fatal("not within a minute")
	}
}

// A broker dies with its log intact, or a leader dies and another takes over: each
// record is there once, where its callback said.
func TestRealBrokerThatIsKilledLosesAndRepeatsNothing(t *testing.T) {
	for _, brokers := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d brokers", brokers), func(t *testing.T) {
			// A property, so that it is a cluster of its own wherever the tests run.
			c := realkafka.Start(t, realkafka.Config{Brokers: brokers, Properties: map[string]string{"num.partitions": "1"}})
			cfg := config(c.Brokers())
			adm := admin(t, cfg)
			if _, err := adm.CreateTopic(within(t, time.Minute), int32(brokers), int16(brokers), nil, "killed"); err != nil {
				t.Fatal(err)
			}
			testkit.AwaitTopics(t, c.Brokers(), "killed")
			told := killWhileWriting(t, c, writer(t, cfg), int32(brokers), 50_000)
			checkOnce(t, cfg, told, int32(brokers), 50_000)
		})
	}
}

// killWhileWriting returns what callbacks said: where each value is.
func killWhileWriting(t *testing.T, c *realkafka.Cluster, w *kafka.Writer, partitions int32, n int) *sync.Map {
	t.Helper()
	told := new(sync.Map)
	var landed atomic.Int64
	killed := make(chan error, 1)
	for i, v := range numbers(0, n) {
		w.Write(kafka.Message{Topic: "killed", Partition: int32(i) % partitions, Value: []byte(v)}, func(r kafka.Written) {
			told.Store(v, r)
			if landed.Add(1) == int64(n/10) {
				go func() {
					killed <- errors.Join(c.Kill(0), c.Restart(context.WithoutCancel(t.Context()), 0))
				}()
			}
		})
	}
	if err := w.Flush(within(t, 2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	return told
}

func checkOnce(t *testing.T, cfg kafka.Config, told *sync.Map, partitions int32, n int) {
	t.Helper()
	r, err := kafka.NewReader(cfg, kafka.WithRetryFor(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	seen := 0
	for p := range partitions {
		err := r.ReadForwards(within(t, time.Minute), "killed", p, 0, 1<<40, 1<<20, func(recs []schemas.Record) error {
			for _, rec := range recs {
				seen++
				if said, _ := told.Load(string(rec.Value)); said != (kafka.Written{Offset: rec.Offset}) {
					return fmt.Errorf("%s is at %d, told %+v", rec.Value, rec.Offset, said)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen != n {
		t.Fatalf("%d records for %d writes", seen, n)
	}
}

// A broker that has just begun to lead knows how far the log was committed some time
// before, until its followers have asked it.
func TestRealLogIsReadWholeWhileBrokersAreKilled(t *testing.T) {
	c := realkafka.Start(t, realkafka.Config{Brokers: 3, Properties: map[string]string{"num.partitions": "1"}})
	cfg := config(c.Brokers())
	if _, err := admin(t, cfg).CreateTopic(within(t, time.Minute), 3, 3, nil, "back"); err != nil {
		t.Fatal(err)
	}
	testkit.AwaitTopics(t, c.Brokers(), "back")
	w := writer(t, cfg)
	r, err := kafka.NewReader(cfg, kafka.WithRetryFor(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const each = 1000
	for p := range int32(3) {
		for _, v := range numbers(0, each) {
			w.Write(kafka.Message{Topic: "back", Partition: p, Value: []byte(v)}, func(r kafka.Written) {
				if r.Err != nil {
					t.Error(r.Err)
				}
			})
		}
	}
	if err := w.Flush(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := c.Kill(i); err != nil {
			t.Fatal(err)
		}
		back := make(chan error, 1)
		go func() { back <- c.Restart(context.WithoutCancel(t.Context()), i) }()
		for reading := true; reading; {
			select {
			case err := <-back:
				if err != nil {
					t.Fatal(err)
				}
				reading = false
			default:
			}
			for p := range int32(3) {
				got := 0
				count := func(recs []schemas.Record) error { got += len(recs); return nil }
				if err := r.ReadForwards(within(t, time.Minute), "back", p, 0, each, 1<<20, count); err != nil || got != each {
					t.Errorf("broker %d was killed: %d of %d records of partition %d, %v", i, got, each, p, err)
				}
				got = 0
				if err := r.ReadBackwards(within(t, time.Minute), "back", p, 0, each, 1<<20, count); err != nil || got != each {
					t.Errorf("broker %d was killed: %d of %d records of partition %d backwards, %v", i, got, each, p, err)
				}
			}
		}
	}
}

// A broker is frozen while it leads, for longer than the others wait for it, and wakes up.
// Until it has heard that it was replaced it answers whoever asked it meanwhile, and knows
// nothing of what its successor has acknowledged.
func TestRealLogDoesNotEndWhereAFrozenLeaderWakesUp(t *testing.T) {
	c := realkafka.Start(t, realkafka.Config{Brokers: 3, Properties: map[string]string{
		"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300",
	}})
	if c.External() {
		t.Skip("the cluster of MILENA_TEST_BROKERS is not ours to freeze")
	}
	adm := admin(t, config(c.Brokers()))
	if _, err := adm.CreateTopic(within(t, time.Minute), 1, 3, nil, "frozen"); err != nil {
		t.Fatal(err)
	}
	testkit.AwaitTopics(t, c.Brokers(), "frozen")
	const each = 100
	writeAll(t, writer(t, config(c.Brokers())), "frozen", numbers(0, each))
	for written := int64(each); written < 4*each; written += each {
		leader := leaderOf(t, adm, "frozen")
		awake := slices.Delete(c.Brokers(), int(leader), int(leader)+1)
		ask := map[string]func(r *kafka.Reader) (int64, error){
			"the end": func(r *kafka.Reader) (int64, error) {
				ends, err := r.HighWatermarks(within(t, time.Minute), "frozen")
				return slices.Max(append(ends, 0)), err
			},
			"records": func(r *kafka.Reader) (int64, error) {
				n := written
				err := r.ReadForwards(within(t, time.Minute), "frozen", 0, written, written+each, 1<<20, func(recs []schemas.Record) error {
					n += int64(len(recs))
					return nil
				})
				return n, err
			},
		}
		if err := c.Freeze(int(leader)); err != nil {
			t.Fatal(err)
		}
		for at := leader; at == leader; {
			at = leaderOf(t, admin(t, config(awake)), "frozen")
		}
		writeAll(t, writer(t, config(awake)), "frozen", numbers(0, each))
		var answers sync.WaitGroup
		for what, ask := range ask {
			r, err := kafka.NewReader(config(c.Brokers()[leader : leader+1]))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			answers.Go(func() {
				if n, err := ask(r); err != nil || n != written+each {
					t.Errorf("%s: %d, not %d: %v", what, n, written+each, err)
				}
			})
		}
		<-time.After(200 * time.Millisecond) // they have asked
		if err := c.Thaw(int(leader)); err != nil {
			t.Fatal(err)
		}
		answers.Wait()
		if err := c.WaitReady(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
}

// leaderOf is the index of the broker that leads partition 0; while none does it waits.
func leaderOf(t testing.TB, adm *kadm.Client, topic string) (leader int32) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() string {
		details, err := adm.ListTopics(within(t, time.Minute), topic)
		if err != nil {
			return err.Error()
		}
		p, ok := details[topic].Partitions[0]
		if leader = p.Leader - 1; !ok || leader < 0 {
			return "nobody leads " + topic
		}
		return ""
	})
	return leader
}
