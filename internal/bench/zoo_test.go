package bench

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/egress"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/logging"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

const (
	zooGood  = 200
	zooEach  = 8 // of each animal
	zooRate  = 2_000
	zooSpan  = 3 * time.Second
	zooLimit = time.Second // deadline of an attempt at an animal
)

// zooPhase is what one phase came to.
type zooPhase struct {
	phase

	heap    uint64 // most bytes of live and not yet swept objects
	files   int    // most descriptors, those of the receivers and the broker included
	classes map[string]int
	unclear int // attempts at animals without a class and without a status
}

func (z zooPhase) String() string {
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, longest %.1f ms, %.2f %% delivered, heap %d MiB, %d descriptors",
		z.p50.Seconds()*1000, z.p99.Seconds()*1000, z.longest.Seconds()*1000, 100*z.delivered, z.heap>>20, z.files)
}

// told is what the attempts came to.
func (z zooPhase) told() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(z.classes)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, z.classes[name]))
	}
	return strings.Join(parts, ", ")
}

// watch samples memory and descriptors until it is told to stop.
func watch() (stop func() (heap uint64, files int)) {
	quit, done := make(chan struct{}), make(chan struct{})
	var heap uint64
	var files int
	go func() {
		defer close(done)
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			metrics.Read(sample)
			heap = max(heap, sample[0].Value.Uint64())
			if open, err := os.ReadDir("/proc/self/fd"); err == nil {
				files = max(files, len(open))
			}
			select {
			case <-tick.C:
			case <-quit:
				return
			}
		}
	}()
	return func() (uint64, int) {
		close(quit)
		<-done
		return heap, files
	}
}

// runZoo offers the same load to 400 endpoints: 200 are good, the others are good too
// or the animals.
func runZoo(b *testing.B, fake *testkit.Fake, prefix string, dirty bool) (z zooPhase) {
	b.Helper()
	logging.Standard(quiet()) // the animals speak out of turn
	in := install(b, fake, prefix)
	ca := testkit.NewAuthority(b)
	in.opts.Egress = func(c *egress.Config) { c.RootCAs = ca.Pool() }
	conf := &tls.Config{NextProtos: []string{"h2"}, Certificates: []tls.Certificate{ca.Issue(b, testkit.CertSpec{}).TLS}}
	var seen delays
	good := testkit.NewCheapReceiver(b, func(head []byte) {
		if made, ok := stamp(head); ok {
			seen.add(time.Since(made))
		}
	})
	total := zooGood + zooEach*len(animals)
	in.register(total, func(i int, ep *schemas.Endpoint) {
		ep.URL = good.URL("/" + ep.ID)
		if n := i - zooGood; n >= 0 && dirty {
			ep.URL = animals[n/zooEach].url(b, n%zooEach, conf)
			ep.Timeout = schemas.Duration(zooLimit)
		}
	})
	stop := in.run()
	watched := watch()
	offered := offerAll(in, total)
	z.heap, z.files = watched()
	stop()
	z.classes, z.unclear = classes(in)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	slices.Sort(seen.all)
	n := len(seen.all)
	if n == 0 {
		b.Fatal("nothing was delivered")
	}
	z.p50, z.p99, z.longest, z.delivered = seen.all[n/2], seen.all[n*99/100], seen.all[n-1], float64(n)/float64(offered)
	return z
}

// offerAll produces zooRate events a second for all endpoints in turn, whatever
// becomes of them, and returns how many went to the good ones.
func offerAll(in *installation, total int) (good int) {
	body := bytes.Repeat([]byte("x"), payloadSize)
	const tick = 10 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	next := 0
	end := time.Now().Add(zooSpan)
	for now := range ticker.C {
		if now.After(end) {
			break
		}
		for range zooRate / int(time.Second/tick) {
			i := next % total
			next++
			id := "other"
			if i < zooGood {
				id = "good-" + strconv.FormatInt(time.Now().UnixNano(), 10)
				good++
			}
			in.produce(in.record(endpointID(i), id, body))
		}
	}
	check(in.tb, in.cl.Flush(in.tb.Context()))
	waitQuiet()
	return good
}

// classes counts what the attempts at animals came to, by the delivery log.
func classes(in *installation) (counts map[string]int, unclear int) {
	in.tb.Helper()
	counts = map[string]int{}
	r, err := kafka.NewReader(kafka.Config{Brokers: in.fake.Brokers(), Names: in.names(), Logger: quiet()})
	check(in.tb, err)
	defer r.Close()
	ctx, cancel := newContext()
	defer cancel()
	ends, err := r.HighWatermarks(ctx, in.names().Attempts())
	check(in.tb, err)
	for p, end := range ends {
		check(in.tb, r.ReadForwards(ctx, in.names().Attempts(), int32(p), 0, end, 1<<20, func(recs []schemas.Record) error {
			for _, rec := range recs {
				var a schemas.Attempt
				if err := json.Unmarshal(rec.Value, &a); err != nil {
					return err
				}
				n, err := strconv.Atoi(strings.TrimPrefix(a.EndpointID, "ep"))
				switch {
				case err != nil || n < zooGood:
					continue
				case a.ErrorClass != "":
					counts[string(a.ErrorClass)]++
				case a.Status != 0:
					counts[strconv.Itoa(a.Status/100)+"xx"]++
				case a.Reason != "":
					counts[string(a.Reason)]++
				}
				if a.ErrorClass == schemas.ClassInternal || a.ErrorClass == "" && a.Status == 0 && a.Reason == "" {
					unclear++
				}
			}
			return nil
		}))
	}
	return counts, unclear
}

// BenchmarkZoo puts 200 receivers that misbehave, each in another way, beside 200 good
// ones: what it adds to the good ones' p99 (R2), and what it takes of memory and
// descriptors. Clean and dirty phases alternate.
func BenchmarkZoo(b *testing.B) {
	const rounds = 5
	for b.Loop() {
		fake := testkit.NewFake(b)
		capacity := wholeWay(b, 60_000).rate
		if zooRate > 0.4*capacity {
			b.Fatalf("void: %d/s offered is more than 40 %% of the clean capacity of %.0f/s", zooRate, capacity)
		}
		var report strings.Builder // one call: go test cuts off after ten lines
		fmt.Fprintf(&report, "capacity %.0f/s, offered %d/s (%.0f %%) for %s a phase, %d good and %d animals\n", capacity, zooRate, 100*zooRate/capacity, zooSpan, zooGood, zooEach*len(animals))
		var clean, dirty, delivered []float64
		for r := range rounds {
			c := runZoo(b, fake, fmt.Sprintf("zoo%dclean.", r), false)
			d := runZoo(b, fake, fmt.Sprintf("zoo%ddirty.", r), true)
			clean, dirty = append(clean, c.p99.Seconds()*1000), append(dirty, d.p99.Seconds()*1000)
			delivered = append(delivered, d.delivered)
			if d.unclear > 0 {
				b.Errorf("%d attempts are not classified", d.unclear)
			}
			fmt.Fprintf(&report, "round %d: clean %s; dirty %s; the animals: %s\n", r+1, c, d, d.told())
		}
		added, allowed := median(dirty)-median(clean), max(0.2*median(clean), 20)
		b.Logf("%sp99 of the good ones: clean %.1f ms, dirty %.1f ms; added %.1f ms of %.1f allowed (R2)", report.String(), median(clean), median(dirty), added, allowed)
		if added > allowed {
			b.Errorf("R2 is not kept")
		}
		b.ReportMetric(median(clean), "clean-p99-ms")
		b.ReportMetric(median(dirty), "dirty-p99-ms")
		b.ReportMetric(added, "added-ms")
		b.ReportMetric(slices.Min(delivered), "good-delivered")
	}
}
