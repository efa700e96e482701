//go:build kafka

package attempts

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/internal/testkit/realkafka"
	"github.com/milena-project/milena/schemas"
)

// benchAttempts is how many records the log of BenchmarkSearch has in its one partition.
func benchAttempts(b *testing.B) int {
	b.Helper()
	n, err := strconv.Atoi(os.Getenv("MILENA_BENCH_ATTEMPTS"))
	if err != nil || n <= 0 {
		return 200_000
	}
	return n
}

// BenchmarkSearch asks for one delivery among many, the oldest: all of the log is read.
// MILENA_BENCH_ATTEMPTS=10000000 makes it ten million records (five minutes to write).
func BenchmarkSearch(b *testing.B) {
	cluster := realkafka.Start(b, realkafka.Config{})
	n := benchAttempts(b)
	cl := testkit.NewClient(b, cluster.Brokers(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(128<<10),
		kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.MaxBufferedRecords(20_000))
	if _, err := kadm.NewClient(cl).CreateTopic(b.Context(), 1, 1, nil, "webhooks.attempts"); err != nil {
		b.Fatal(err)
	}
	bytes := fillLog(b, cl, n)
	l, err := Open(kafka.Config{Brokers: cluster.Brokers()}, 10*time.Second)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct {
		name string
		f    Filter
	}{
		{"endpoint_and_subject", Filter{Endpoint: "ep17", Subject: "order-17"}},
		{"message", Filter{Message: schemas.MessageID("/shop", "evt-17")}},
		{"endpoint_failed", Filter{Endpoint: "ep17", Failed: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				end, err := l.End(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				found, _, err := l.Last(b.Context(), c.f, end, 100)
				if err != nil || len(found) == 0 {
					b.Fatalf("%d found, %v", len(found), err)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(bytes)/float64(n), "bytes/record")
		})
	}
}

// fillLog writes n attempts of a thousand endpoints; one in twenty failed.
func fillLog(b *testing.B, cl *kgo.Client, n int) (bytes int64) {
	b.Helper()
	began := time.Now().Add(-24 * time.Hour)
	for i := range n {
		endpoint := "ep" + strconv.Itoa(i%1_000)
		a := schemas.Attempt{
			DeliveryID: fmt.Sprintf("webhooks.deliveries-3fa94c1e-0-%d.%s", i, endpoint), MessageID: schemas.MessageID("/shop", "evt-"+strconv.Itoa(i)),
			EndpointID: endpoint, EventID: "evt-" + strconv.Itoa(i), Source: "/shop", Type: "order.created", Subject: "order-" + strconv.Itoa(i),
			Outcome: schemas.OutcomeDelivered, Number: 1, Status: 200, URL: "https://" + endpoint + ".example/hooks",
			Origin: fmt.Sprintf("webhooks.deliveries-3fa94c1e-0-%d", i), Started: began.Add(time.Duration(i) * time.Millisecond), Duration: 12.5, Delay: 0.8, Bytes: 812,
		}
		if i%20 == 17 {
			a.Outcome, a.Status = schemas.OutcomeRetry, 503
		}
		value := schemas.AppendAttempt(make([]byte, 0, 700), &a)
		bytes += int64(len(value))
		cl.Produce(b.Context(), &kgo.Record{Topic: "webhooks.attempts", Key: []byte(endpoint), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	if err := cl.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	return bytes
}
