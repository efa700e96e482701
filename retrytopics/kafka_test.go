//go:build kafka

package retrytopics

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
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

func TestMain(m *testing.M) {
	if runChild() {
		return
	}
	testkit.VerifyMain(realkafka.WithShared(m))
}

func init() { //nolint:gochecknoinits // what the build tag changes
	realBroker = func(b *testing.B) []string { return realkafka.Start(b, realkafka.Config{}).Brokers() }
}

// onKafka is a prefix of its own on a real broker, with the tiers that a wait of
// less than five minutes takes.
type onKafka struct {
	t      *testing.T
	cfg    kafka.Config
	writer *kafka.Writer
	child  childConfig
}

func newOnKafka(t *testing.T) *onKafka {
	cluster := realkafka.Shared(t)
	k := &onKafka{t: t, cfg: kafka.Config{Brokers: cluster.Brokers(), Logger: slog.New(slog.DiscardHandler),
		Names: schemas.Names{Prefix: fmt.Sprintf("rt%08x.", rand.Uint32())}}}
	cl, err := k.cfg.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	adm := kadm.NewClient(cl)
	appendTime := map[string]*string{"message.timestamp.type": kadm.StringPtr("LogAppendTime")}
	topics := []string{k.cfg.Names.Deliveries(), k.cfg.Names.Retry(0), k.cfg.Names.Retry(10 * time.Second), k.cfg.Names.Retry(time.Minute)}
	for _, topic := range topics {
		if _, err := adm.CreateTopic(t.Context(), 4, 1, appendTime, topic); err != nil {
			t.Fatal(err)
		}
	}
	testkit.AwaitTopics(t, cluster.Brokers(), topics...)
	if k.writer, err = kafka.NewWriter(k.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.writer.Close(context.Background()) })
	k.child = childConfig{Brokers: cluster.Brokers(), Prefix: k.cfg.Names.Prefix, TierPartitions: 4, DeliveriesPartitions: 4, SessionTimeout: 6 * time.Second}
	return k
}

// park parks n deliveries: half wait in the 10s tier, half in the 1m tier.
func (k *onKafka) park(n int) {
	p, err := NewParker(ParkerConfig{Writer: k.writer, DeadLetter: &letters{}, Names: k.cfg.Names, Partitions: 4})
	if err != nil {
		k.t.Fatal(err)
	}
	var acked atomic.Int64
	all := make(chan struct{})
	start := time.Now()
	for i := range n {
		wait := 12*time.Second + rand.N(15*time.Second)
		if i%2 == 1 {
			wait = 61*time.Second + rand.N(15*time.Second)
		}
		d := schemas.Delivery{EndpointID: "ep_" + strconv.Itoa(i%500), Payload: []byte(`{"order":` + strconv.Itoa(i) + `}`), Attempt: 1,
			Event:  schemas.Event{ID: strconv.Itoa(i), Source: "shop", Type: "order.created", SpecVersion: "1.0"},
			Origin: schemas.Origin{Topic: k.cfg.Names.Deliveries(), TopicID: [4]byte{1}, Partition: 1, Offset: int64(i)}, NotBefore: start.Add(wait)}
		p.Park(&d, func() {
			if acked.Add(1) == int64(n) {
				close(all)
			}
		})
	}
	<-all
}

// arrival is when a delivery came for the first time.
type arrival struct {
	at, notBefore time.Time
}

// receive reads deliveries until n different ones have come and quiet passed without
// another; it fails at one that is early. progress is called for every new one.
func (k *onKafka) receive(n int, quiet time.Duration, progress func(got int)) (first map[string]arrival, copies []arrival) {
	cl, err := k.cfg.NewClient(kgo.ConsumeTopics(k.cfg.Names.Deliveries()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		k.t.Fatal(err)
	}
	defer cl.Close()
	first = map[string]arrival{}
	end := time.Now().Add(4 * time.Minute)
	last := time.Now()
	for time.Now().Before(end) && (len(first) < n || time.Since(last) < quiet) {
		ctx, cancel := context.WithTimeout(k.t.Context(), time.Second)
		fetches := cl.PollFetches(ctx)
		cancel()
		now := time.Now()
		fetches.EachRecord(func(rec *kgo.Record) {
			d, err := schemas.ParseDelivery(kafka.FromKgo(rec, [16]byte{}))
			if err != nil {
				k.t.Errorf("malformed: %v", err)
				return
			}
			if now.Before(d.NotBefore) || d.Released.Before(d.NotBefore) {
				k.t.Errorf("%s came %v early", d.ID(), d.NotBefore.Sub(now))
			}
			last = now
			if was, ok := first[d.ID()]; ok {
				copies = append(copies, was)
				return
			}
			first[d.ID()] = arrival{now, d.NotBefore}
			progress(len(first))
		})
	}
	if len(first) != n {
		k.t.Errorf("%d of %d came", len(first), n)
	}
	return first, copies
}

func TestOnKafkaNoneIsEarlyAndTheyAreOnTime(t *testing.T) {
	t.Parallel() // most of it is waiting
	k := newOnKafka(t)
	c := startChild(t, k.child)
	k.park(realRecords)
	first, copies := k.receive(realRecords, 3*time.Second, func(int) {})
	var late []time.Duration
	for _, a := range first {
		late = append(late, a.at.Sub(a.notBefore))
	}
	if len(copies) > 0 {
		t.Errorf("%d copies without any trouble", len(copies))
	}
	if len(late) > 0 {
		slices.Sort(late)
		p99 := late[len(late)*99/100]
		t.Logf("late p50 %v, p99 %v, max %v; %+v", late[len(late)/2], p99, late[len(late)-1], c.end())
		if punctual && p99 > time.Second {
			t.Errorf("p99 is %v late, want at most 1s", p99)
		}
	}
}

func TestOnKafkaAKilledReleaserLosesNothingAndRepeatsTheLastSecondsOnly(t *testing.T) {
	t.Parallel() // most of it is waiting
	k := newOnKafka(t)
	c := startChild(t, k.child)
	k.park(realRecords)
	var killed time.Time
	first, copies := k.receive(realRecords, 15*time.Second, func(got int) {
		if got == realRecords/4 { // half of the first wave is out, the second one waits
			c.kill()
			killed = time.Now()
			c = startChild(t, k.child)
		}
	})
	for _, a := range copies {
		if before := killed.Sub(a.at); before > Near {
			t.Errorf("a copy of a delivery that had come %v before the kill", before)
		}
	}
	t.Logf("%d came, %d copies; %+v", len(first), len(copies), c.end())
}
