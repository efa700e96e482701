//go:build synctests

// These run the releaser against the embedded broker in virtual time. The tag makes
// kgo's locks visible to testing/synctest: go test -tags synctests.

package retrytopics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// virtual is an embedded broker inside a synctest bubble, and who reads deliveries.
type virtual struct {
	t      *testing.T
	fake   *testkit.Fake
	cfg    kafka.Config
	writer *kafka.Writer
	recv   *receiver
	stop   []func()
}

func newVirtual(t *testing.T, policy Policy) *virtual {
	var network kfake.VirtualNetwork
	v := &virtual{t: t}
	topics := []testkit.Topic{{Name: names.Deliveries(), Partitions: 4}}
	for _, tier := range Tiers(schemas.DefaultTiers()) {
		topics = append(topics, testkit.Topic{Name: names.Retry(tier), Partitions: toyPartitions})
	}
	v.fake = testkit.NewFake(t, testkit.WithKfake(kfake.ListenFn(network.Listen), kfake.Ports(19092)), testkit.WithTopics(topics...))
	v.cfg = kafka.Config{Brokers: v.fake.Brokers(), Names: names, Dialer: network.DialContext, Logger: slog.New(slog.DiscardHandler)}
	// An empty fetch comes back when there is something, and after a minute in place
	// of a quarter of a second: three days of those would be most of the test.
	v.fake.Observe(1, func(req kmsg.Request) { req.(*kmsg.FetchRequest).MaxWaitMillis = 60_000 })
	var err error
	if v.writer, err = kafka.NewWriter(v.cfg); err != nil {
		t.Fatal(err)
	}
	v.recv = &receiver{t: t, policy: policy, parker: v.parker(), seen: map[string]time.Time{}, finished: map[string]int{}, attempts: map[string][]attempt{}}
	v.receive()
	return v
}

func (v *virtual) parker() *Parker {
	p, err := NewParker(ParkerConfig{Writer: v.writer, DeadLetter: &letters{}, Partitions: toyPartitions})
	if err != nil {
		v.t.Fatal(err)
	}
	return p
}

// receive reads deliveries from the start, as their owner.
func (v *virtual) receive() {
	cl, err := v.cfg.NewClient(kgo.ConsumeTopics(names.Deliveries()), kgo.FetchMaxWait(time.Minute))
	if err != nil {
		v.t.Fatal(err)
	}
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			fetches.EachRecord(func(rec *kgo.Record) {
				v.recv.hear(kafka.Message{Topic: rec.Topic, Partition: rec.Partition, Key: rec.Key, Value: rec.Value,
					Headers: kafka.FromKgo(rec, [16]byte{}).Headers})
			})
		}
	}()
	v.stop = append(v.stop, func() { cancel(); <-ended; cl.Close() })
}

// releaser starts a member of the releaser's group. stop ends it in good order;
// kill cuts it off first, so that nothing it does from then on reaches the broker.
func (v *virtual) releaser(change func(*ReleaserConfig)) (stop func() error, kill func()) {
	wire := &wire{dial: v.cfg.Dialer, conns: map[net.Conn]bool{}}
	kcfg := v.cfg
	kcfg.Dialer = wire.Dial
	w, err := kafka.NewWriter(kcfg)
	if err != nil {
		v.t.Fatal(err)
	}
	p, err := NewParker(ParkerConfig{Writer: w, DeadLetter: &letters{}, Partitions: toyPartitions})
	if err != nil {
		v.t.Fatal(err)
	}
	cfg := ReleaserConfig{Kafka: kcfg, Writer: w, Parker: p, DeadLetter: &letters{}, DeliveriesPartitions: 4}
	// What turns every few seconds does so a hundred thousand times in three days.
	cfg.Consume.WatchInterval, cfg.Consume.CommitInterval = time.Minute, 5*time.Second
	cfg.Consume.SessionTimeout, cfg.Consume.HeartbeatInterval = 5*time.Minute, time.Minute
	if change != nil {
		change(&cfg)
	}
	r, err := NewReleaser(cfg)
	if err != nil {
		v.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = func() error {
		cancel()
		return errors.Join(<-ended, w.Close(context.Background()))
	}
	kill = func() {
		wire.cut()
		cancel()
		<-ended // with the error of a commit that reached nobody
		gone, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		_ = w.Close(gone)
	}
	return stop, kill
}

// wire is a network that can be cut for one process.
type wire struct {
	dial  kafka.Dialer
	mu    sync.Mutex
	conns map[net.Conn]bool
	dead  bool
}

func (w *wire) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := w.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		_ = c.Close()
		return nil, errors.New("the wire is cut")
	}
	w.conns[c] = true
	return c, nil
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	for c := range w.conns {
		_ = c.Close()
	}
}

func (v *virtual) close() {
	for _, f := range v.stop {
		f()
	}
	if err := v.writer.Close(context.Background()); err != nil {
		v.t.Errorf("writer: %v", err)
	}
	v.fake.Stop()
	synctest.Wait()
}

func TestVirtualNineAttemptsOverThreeDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := compile(t, schemas.Retry{})
		v := newVirtual(t, policy)
		stop, _ := v.releaser(nil)
		const n = 20
		start := time.Now()
		for i := range n {
			d := delivery("ep_"+strconv.Itoa(i), int64(i))
			d.Enqueued = start
			v.recv.attempt(&d)
		}
		for v.recv.left(n) > 0 && time.Since(start) < 100*time.Hour {
			time.Sleep(time.Minute)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		v.close()
		if len(v.recv.attempts) != n {
			t.Errorf("%d deliveries, want %d", len(v.recv.attempts), n)
		}
		for id, attempts := range v.recv.attempts {
			if len(attempts) != 9 {
				t.Errorf("%s: %d attempts, want 9", id, len(attempts))
				continue
			}
			for i := 1; i < 9; i++ {
				step := policy.steps[i-1].delay
				if gap := attempts[i].at.Sub(attempts[i-1].at); gap < step || gap > step+step/10+time.Second {
					t.Errorf("%s: attempt %d came %v after the one before, want %v + at most 10 %% and a second", id, i+1, gap, step)
				}
			}
		}
		t.Logf("at most %v late, %d copies", v.recv.latest, v.recv.copies)
	})
}

func TestVirtualMembersComeGoAndDieAndNothingIsEarlyOrLost(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { churn(t, seed) })
		})
	}
}

// churn runs deliveries through minutes of retries while members of the group join,
// leave and die.
func churn(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	var schedule []schemas.Duration
	for range 5 {
		schedule = append(schedule, schemas.Duration(rng.Int64N(int64(10*time.Minute))))
	}
	v := newVirtual(t, compile(t, schemas.Retry{Schedule: schedule}))
	tight := func(c *ReleaserConfig) {
		c.NearBytes = 8 << 10
		c.Consume.SessionTimeout, c.Consume.HeartbeatInterval = 20*time.Second, 3*time.Second
	}
	type member struct{ stop, kill func() }
	start := func() member {
		stop, kill := v.releaser(tight)
		return member{kill: kill, stop: func() {
			// While the group waits for a member that died, nobody can commit.
			if err := stop(); err != nil {
				t.Logf("left without its last commit: %v", err)
			}
		}}
	}
	members := []member{start()}
	const total = 100
	for i := range total {
		d := delivery("ep_"+strconv.Itoa(i), int64(i))
		d.Enqueued = time.Now()
		v.recv.attempt(&d)
		time.Sleep(time.Duration(rng.Int64N(int64(3 * time.Second))))
	}
	for range 20 {
		time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Minute))))
		i := rng.IntN(len(members))
		switch what := rng.IntN(3); {
		case what == 0 && len(members) < 4:
			members = append(members, start())
		case what == 1:
			members[i].kill()
			members[i] = start()
		default:
			members[i].stop()
			members[i] = start()
		}
	}
	for end := time.Now().Add(3 * time.Hour); v.recv.left(total) > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Second)
	}
	for _, m := range members {
		m.stop()
	}
	v.close()
	if left := v.recv.left(total); left > 0 {
		t.Errorf("seed %d: %d of %d deliveries are lost", seed, left, total)
	}
	t.Logf("%d copies were dropped", v.recv.copies)
}
