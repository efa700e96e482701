package retrytopics

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// size is a size of a benchmark, from the environment or as it is published.
func size(name string, published int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return published
}

// stage is a broker with all topics and who fills the tiers.
type stage struct {
	b      *testing.B
	cfg    kafka.Config
	writer *kafka.Writer
	adm    *kadm.Client
	child  childConfig
}

const (
	benchTierPartitions = 3
	benchPartitions     = 12
)

// realBroker starts a real broker for a benchmark; nil without the build tag kafka,
// then it is the embedded one.
var realBroker func(b *testing.B) []string

func makeTopics(b *testing.B, brokers []string, topics []testkit.Topic) {
	b.Helper()
	adm := kadm.NewClient(testkit.NewClient(b, brokers))
	for _, t := range topics {
		if _, err := adm.CreateTopic(b.Context(), t.Partitions, 1, nil, t.Name); err != nil {
			b.Fatal(err)
		}
	}
}

func newStage(b *testing.B) *stage {
	topics := []testkit.Topic{{Name: names.Deliveries(), Partitions: benchPartitions}}
	for _, tier := range Tiers(schemas.DefaultTiers()) {
		topics = append(topics, testkit.Topic{Name: names.Retry(tier), Partitions: benchTierPartitions})
	}
	var brokers []string
	if realBroker != nil {
		brokers = realBroker(b)
		makeTopics(b, brokers, topics)
	} else {
		brokers = testkit.NewFake(b, testkit.WithTopics(topics...)).Brokers()
	}
	s := &stage{b: b, cfg: kafka.Config{Brokers: brokers, Names: names, Logger: slog.New(slog.DiscardHandler)}}
	var err error
	if s.writer, err = kafka.NewWriter(s.cfg); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.writer.Close(context.Background()) })
	s.adm = kadm.NewClient(testkit.NewClient(b, brokers))
	s.child = childConfig{Brokers: brokers, Prefix: names.Prefix, TierPartitions: benchTierPartitions, DeliveriesPartitions: benchPartitions}
	return s
}

// park parks n deliveries of 500 bytes for 1,000 endpoints, the i-th due at due(i),
// and returns when all are acknowledged.
func (s *stage) park(n int, due func(i int) time.Time) {
	p, err := NewParker(ParkerConfig{Writer: s.writer, DeadLetter: &letters{}, Partitions: benchTierPartitions})
	if err != nil {
		s.b.Fatal(err)
	}
	payload := make([]byte, 500) // does not compress: what waits is as large as it looks
	for i := range payload {
		payload[i] = byte(rand.Uint32())
	}
	inFlight := make(chan struct{}, 50_000)
	var wg sync.WaitGroup
	for i := range n {
		d := schemas.Delivery{EndpointID: "ep_" + strconv.Itoa(i%1000), Payload: payload, Attempt: 1, NotBefore: due(i),
			Event:  schemas.Event{ID: strconv.Itoa(i), Source: "bench", Type: "order.created", SpecVersion: "1.0"},
			Origin: schemas.Origin{Topic: names.Deliveries(), Partition: 1, Offset: int64(i)}, Enqueued: time.Now(), LastStatus: 503}
		inFlight <- struct{}{}
		wg.Add(1)
		p.Park(&d, func() { <-inFlight; wg.Done() })
	}
	wg.Wait()
}

// await waits until n deliveries were released.
func (s *stage) await(n int, patience time.Duration) {
	s.b.Helper()
	testkit.Eventually(s.b, patience, func() string {
		ends, err := s.adm.ListEndOffsets(s.b.Context(), names.Deliveries())
		if err != nil {
			return err.Error()
		}
		var got int64
		ends.Each(func(o kadm.ListedOffset) { got += o.Offset })
		if got < int64(n) {
			return strconv.FormatInt(got, 10) + " of " + strconv.Itoa(n) + " released"
		}
		return ""
	})
}

func (s *stage) tell(r childReport, n int) {
	s.b.ReportMetric(r.P50.Seconds()*1000, "late-p50-ms")
	s.b.ReportMetric(r.P99.Seconds()*1000, "late-p99-ms")
	s.b.ReportMetric(r.Max.Seconds()*1000, "late-max-ms")
	s.b.ReportMetric(float64(r.TierWrites)/float64(n), "tier-moves/delivery")
	s.b.ReportMetric(float64(r.PeakRSS>>20), "peak-RSS-MiB")
	s.b.ReportMetric(float64(r.HeldMost), "held-most")
	s.b.ReportMetric(0, "ns/op")
	if r.Released != n {
		s.b.Errorf("%d released, want %d", r.Released, n)
	}
}

// BenchmarkDueRate is how fast deliveries that are due already move from a tier to
// deliveries: an hour of backlog after an outage.
func BenchmarkDueRate(b *testing.B) {
	n := size("MILENA_BENCH_DUE", 1_000_000)
	for range b.N {
		s := newStage(b)
		s.park(n, func(int) time.Time { return time.Now().Add(-time.Minute) })
		c := startChild(b, s.child)
		s.await(n, 10*time.Minute)
		r := c.end()
		s.tell(r, n)
		b.ReportMetric(float64(n)/r.LastAck.Sub(r.FirstAck).Seconds(), "released/s")
	}
}

// BenchmarkWaiting has deliveries waiting with due times spread over ten minutes, so
// that most take three hops or more, and then a fifth as many due within one minute.
// MILENA_BENCH_WAITING and MILENA_BENCH_SPAN (seconds) make it smaller.
func BenchmarkWaiting(b *testing.B) {
	n := size("MILENA_BENCH_WAITING", 1_000_000)
	span := time.Duration(size("MILENA_BENCH_SPAN", 600)) * time.Second
	for range b.N {
		s := newStage(b)
		c := startChild(b, s.child)
		fill := time.Duration(n/20_000+5) * time.Second // nothing is due before all are parked
		begin := time.Now().Add(fill)
		s.park(n, func(i int) time.Time { return begin.Add(span * time.Duration(i) / time.Duration(n)) })
		burst := begin.Add(span + 15*time.Second)
		s.park(n/5, func(i int) time.Time { return burst.Add(time.Minute * time.Duration(i) / time.Duration(n/5)) })
		if time.Now().After(begin) {
			b.Log("parking took longer than planned: the first were due before they were parked")
		}
		s.await(n+n/5, fill+span+10*time.Minute)
		s.tell(c.end(), n+n/5)
	}
}
