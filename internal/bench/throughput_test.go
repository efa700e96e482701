package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func newContext() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

// speed is what a run came to. CPU is of the whole test process, so it has the
// receiver's and (whole way) the embedded broker's share in it.
type speed struct {
	rate float64       // requests a second
	cpu  time.Duration // for each of them, user and system
}

func (s speed) String() string {
	return fmt.Sprintf("%.0f/s with %s of CPU each", s.rate, s.cpu.Round(100*time.Nanosecond))
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// wholeWay is deliveries from Kafka to the receiver, with signature, delivery log
// and commits: from the first tenth of n to its end.
func wholeWay(tb testing.TB, n int) speed {
	tb.Helper()
	in := install(tb, testkit.NewFake(tb), "bench.")
	receiver := testkit.NewCheapReceiver(tb, nil)
	in.register(endpoints, func(i int, ep *schemas.Endpoint) { ep.URL = receiver.URL("/" + endpointID(i)) })
	body := bytes.Repeat([]byte("x"), payloadSize)
	for i := range n {
		in.produce(in.record(endpointID(i%endpoints), strconv.Itoa(i), body))
	}
	check(tb, in.cl.Flush(tb.Context()))
	in.cfg.Dispatcher.MaxInFlight = inFlight // as the bare loop has
	stop := in.run()
	reached := func(k int) time.Time {
		testkit.Eventually(tb, 2*time.Minute, func() string {
			if c := receiver.Count(); c < int64(k) {
				return fmt.Sprintf("%d of %d", c, k)
			}
			return ""
		})
		return time.Now()
	}
	first := reached(n / 10)
	counted, cpu := receiver.Count(), cpuTime()
	endProfile := profile(tb)
	last := reached(n)
	cpu = cpuTime() - cpu
	endProfile()
	stop()
	if got := receiver.Count(); got != int64(n) {
		tb.Errorf("%d requests for %d records", got, n)
	}
	made := int64(n) - counted
	return speed{rate: float64(made) / last.Sub(first).Seconds(), cpu: cpu / time.Duration(made)}
}

// profile writes a CPU profile to the file that MILENA_CPUPROFILE names.
func profile(tb testing.TB) (end func()) {
	tb.Helper()
	name := os.Getenv("MILENA_CPUPROFILE")
	if name == "" {
		return func() {}
	}
	f, err := os.Create(name)
	check(tb, err)
	check(tb, pprof.StartCPUProfile(f))
	return func() {
		pprof.StopCPUProfile()
		check(tb, f.Close())
	}
}

// BenchmarkThroughput alternates the bare loop and the whole way in one run and
// reports the medians and their ratio.
func BenchmarkThroughput(b *testing.B) {
	const rounds, n = 3, 100_000
	for b.Loop() {
		var bare, whole []float64
		for range rounds {
			x, y := baseline(b, n), wholeWay(b, n)
			bare, whole = append(bare, x.rate), append(whole, y.rate)
			b.Logf("bare %s; whole way %s", x, y)
		}
		b.ReportMetric(median(bare), "bare/s")
		b.ReportMetric(median(whole), "deliveries/s")
		b.ReportMetric(median(whole)/median(bare), "ratio")
	}
}

func median(figures []float64) float64 {
	s := slices.Sorted(slices.Values(figures))
	return s[len(s)/2]
}
