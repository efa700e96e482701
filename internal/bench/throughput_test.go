package bench

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/egress"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
)

// install makes an installation on an embedded broker, with its topics.
func install(tb testing.TB) (config.Config, *testkit.Fake) {
	tb.Helper()
	fake := testkit.NewFake(tb)
	key, err := registry.GenerateKey("bench")
	check(tb, err)
	loaded, err := config.Load(config.Options{Environ: []string{"MILENA_KAFKA_BROKERS=" + fake.Brokers()[0], "MILENA_KEYRING=" + key}})
	check(tb, err)
	cfg := loaded.Config
	cfg.Roles = []string{app.RoleDispatcher, app.RoleReleaser}
	cfg.InitialOffset = "earliest"
	cfg.Egress.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	cfg.Egress.AllowHTTP = true
	cfg.HTTP.Addr = ""
	adm, err := cfg.KafkaConfig(quiet()).NewAdmin()
	check(tb, err)
	defer adm.Close()
	topics := cfg.TopicsConfig()
	topics.KeepForever = true
	plan, err := kafka.MakePlan(tb.Context(), adm, topics)
	check(tb, err)
	_, err = plan.Apply(tb.Context(), adm)
	check(tb, err)
	return cfg, fake
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func register(tb testing.TB, cfg config.Config, url func(i int) string, n int) {
	tb.Helper()
	ring, err := registry.ParseKeyRing(cfg.Keyring)
	check(tb, err)
	out, err := egress.New(cfg.EgressConfig())
	check(tb, err)
	admin := registry.NewAdmin(cfg.KafkaConfig(quiet()), ring, registry.AdminOptions{CheckURL: out.CheckURL})
	defer admin.Close()
	for i := range n {
		_, err := admin.Create(tb.Context(), registry.Actor{Who: "bench", Door: "bench"}, registry.Endpoint{
			ID: "ep" + strconv.Itoa(i), URL: url(i), EventTypes: []string{"*"},
		})
		check(tb, err)
	}
}

// fill writes n records round the endpoints into deliveries.
func fill(tb testing.TB, cfg config.Config, fake *testkit.Fake, n, eps int) {
	tb.Helper()
	cl := fake.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(100_000))
	body := bytes.Repeat([]byte("x"), payloadSize)
	names := cfg.KafkaConfig(quiet()).Names
	for i := range n {
		key := []byte("ep" + strconv.Itoa(i%eps))
		cl.Produce(tb.Context(), &kgo.Record{
			Topic: names.Deliveries(), Partition: kafka.Partition(key, int32(cfg.Topics.Partitions)), Key: key, Value: body,
			Headers: []kgo.RecordHeader{
				{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: []byte(strconv.Itoa(i))},
				{Key: "ce_source", Value: []byte("/bench")}, {Key: "ce_type", Value: []byte("thing.happened")},
			},
		}, func(_ *kgo.Record, err error) {
			if err != nil {
				tb.Error(err)
			}
		})
	}
	check(tb, cl.Flush(tb.Context()))
}

// wholeWay is deliveries a second from Kafka to the receiver, with signature,
// delivery log and commits: between a tenth and the end of n.
func wholeWay(tb testing.TB, n int) float64 {
	tb.Helper()
	cfg, fake := install(tb)
	receiver := testkit.NewCheapReceiver(tb, nil)
	register(tb, cfg, func(i int) string { return receiver.URL("/ep" + strconv.Itoa(i)) }, endpoints)
	fill(tb, cfg, fake, n, endpoints)
	a, err := app.New(cfg, app.Options{Logger: quiet(), Version: "bench"})
	check(tb, err)
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	at := func(k int64) time.Time {
		testkit.Eventually(tb, 2*time.Minute, func() string {
			if c := receiver.Count(); c < k {
				return fmt.Sprintf("%d of %d", c, k)
			}
			return ""
		})
		return time.Now()
	}
	first := at(int64(n) / 10)
	counted := receiver.Count()
	if name := os.Getenv("MILENA_CPUPROFILE"); name != "" {
		f, err := os.Create(name)
		check(tb, err)
		check(tb, pprof.StartCPUProfile(f))
		defer func() { _ = f.Close() }()
	}
	last := at(int64(n))
	pprof.StopCPUProfile()
	rate := float64(int64(n)-counted) / last.Sub(first).Seconds()
	cancel()
	check(tb, <-done)
	if got := receiver.Count(); got != int64(n) {
		tb.Errorf("%d requests for %d records", got, n)
	}
	return rate
}

// BenchmarkThroughput alternates the bare loop and the whole way in one run and
// reports the medians and their ratio.
func BenchmarkThroughput(b *testing.B) {
	rounds, n := 3, 100_000
	for b.Loop() {
		var bare, whole []float64
		for range rounds {
			bare = append(bare, baseline(b, n))
			whole = append(whole, wholeWay(b, n))
			b.Logf("bare %.0f/s, whole way %.0f/s", bare[len(bare)-1], whole[len(whole)-1])
		}
		slices.Sort(bare)
		slices.Sort(whole)
		b.ReportMetric(bare[rounds/2], "bare/s")
		b.ReportMetric(whole[rounds/2], "deliveries/s")
		b.ReportMetric(whole[rounds/2]/bare[rounds/2], "ratio")
	}
}
