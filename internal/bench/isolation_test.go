package bench

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// The mix of bad endpoints: of 1,000, so many hang, answer 500 at once, answer 500
// after three seconds, and flood (a hundred times the others' volume).
const (
	isolationEndpoints = 1_000
	hanging            = 100
	failing            = 50
	slow               = 50
	flooding           = 10
	floodFactor        = 100
)

// load is what one phase of the isolation benchmark offers.
type load struct {
	dirty bool
	rate  int // events a second to the endpoints that are not flooding, all together
	span  time.Duration
	ids   []string
}

// delays collects how long after it was produced each delivery arrived.
type delays struct {
	mu  sync.Mutex
	all []time.Duration
}

func (d *delays) add(v time.Duration) {
	d.mu.Lock()
	d.all = append(d.all, v)
	d.mu.Unlock()
}

// stamp reads the event id, which is the time of its making, from a request's head.
func stamp(head []byte) (made time.Time, good bool) {
	i := bytes.Index(head, []byte("\r\nCe-Id: "))
	if i < 0 {
		return time.Time{}, false
	}
	rest := head[i+9:]
	end := bytes.IndexByte(rest, '\r')
	ns, marked := strings.CutPrefix(string(rest[:max(0, end)]), "good-")
	n, err := strconv.ParseInt(ns, 10, 64)
	return time.Unix(0, n), marked && err == nil
}

type phase struct {
	p50, p99, longest time.Duration
	delivered         float64 // of what was offered to the good ones
	badWrites         map[string]int
}

func (p phase) String() string {
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, longest %.1f ms, good delivered %.4f, records %v",
		p.p50.Seconds()*1000, p.p99.Seconds()*1000, p.longest.Seconds()*1000, p.delivered, p.badWrites)
}

func runPhase(b *testing.B, fake *testkit.Fake, prefix string, l load) phase {
	b.Helper()
	in := install(b, fake, prefix)
	var seen delays
	good := testkit.NewCheapReceiver(b, func(head []byte) {
		if made, ok := stamp(head); ok {
			seen.add(time.Since(made))
		}
	})
	never := make(chan struct{})
	bad := testkit.NewReceiver(b, testkit.Compact(), testkit.WithDefault(func(_ int, r *testkit.Received) testkit.Answer {
		switch {
		case strings.HasPrefix(r.Path, "/hang"):
			return testkit.Answer{Hang: never}
		case strings.HasPrefix(r.Path, "/slow"):
			return testkit.Answer{Delay: 3 * time.Second, Status: http.StatusInternalServerError}
		default:
			return testkit.Answer{Status: http.StatusInternalServerError}
		}
	}))
	kind := func(i int) string {
		switch {
		case !l.dirty || i >= hanging+failing+slow:
			return ""
		case i < hanging:
			return "/hang"
		case i < hanging+failing:
			return "/fail"
		default:
			return "/slow"
		}
	}
	in.register(isolationEndpoints, func(i int, ep *schemas.Endpoint) {
		ep.ID = l.ids[i]
		if k := kind(i); k != "" {
			ep.URL = bad.URL(k + strconv.Itoa(i))
		} else {
			ep.URL = good.URL("/" + ep.ID)
		}
	})
	writes := countWrites(fake, in.names())
	stop := in.run()
	offered := offer(in, l, kind)
	close(never)
	stop()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	slices.Sort(seen.all)
	n := len(seen.all)
	if n == 0 {
		b.Fatal("nothing was delivered")
	}
	return phase{
		p50: seen.all[n/2], p99: seen.all[n*99/100], longest: seen.all[n-1],
		delivered: float64(n) / float64(offered), badWrites: writes(),
	}
}

// offer produces at a fixed rate, whatever becomes of it, and returns how many
// events went to endpoints that are good and do not flood.
func offer(in *installation, l load, kind func(int) string) (offered int) {
	body := bytes.Repeat([]byte("x"), payloadSize)
	const tick = 10 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	next, flood := 0, 0.0
	end := time.Now().Add(l.span)
	for now := range ticker.C {
		if now.After(end) {
			break
		}
		for range l.rate / int(time.Second/tick) {
			i := next % isolationEndpoints
			next++
			id := "bad"
			if kind(i) == "" {
				id = "good-" + strconv.FormatInt(time.Now().UnixNano(), 10)
				offered++
			}
			in.produce(in.record(l.ids[i], id, body))
		}
		if !l.dirty {
			continue
		}
		each := float64(l.rate) / isolationEndpoints
		for flood += each * (floodFactor - 1) * flooding / float64(time.Second/tick); flood >= 1; flood-- {
			in.produce(in.record(l.ids[isolationEndpoints-1-int(flood)%flooding], "flood", body))
		}
	}
	check(in.tb, in.cl.Flush(in.tb.Context()))
	in.tb.Helper()
	waitQuiet()
	return offered
}

// waitQuiet gives what was offered last the time to arrive: it is late by then.
func waitQuiet() { <-time.After(2 * time.Second) }

// countWrites counts the records of each of Milena's topics that are produced from now on.
func countWrites(fake *testkit.Fake, names schemas.Names) func() map[string]int {
	before := logEnds(fake, names)
	return func() map[string]int {
		out := map[string]int{}
		for topic, end := range logEnds(fake, names) {
			out[topic] = end - before[topic]
		}
		return out
	}
}

func logEnds(fake *testkit.Fake, names schemas.Names) map[string]int {
	out := map[string]int{}
	r, err := kafka.NewReader(kafka.Config{Brokers: fake.Brokers(), Names: names, Logger: quiet()})
	if err != nil {
		return out
	}
	defer r.Close()
	ctx, cancel := newContext()
	defer cancel()
	for _, topic := range []string{names.Deliveries(), names.Hold(), names.Health(), names.Attempts(), names.DLQ(), names.Retry(time.Minute), names.Retry(0)} {
		ends, err := r.HighWatermarks(ctx, topic)
		if err != nil {
			continue
		}
		for _, e := range ends {
			out[strings.TrimPrefix(topic, names.Prefix)] += int(e)
		}
	}
	return out
}

// spread are endpoint ids over all partitions; crowded ones share partition 0.
func spread(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = endpointID(i)
	}
	return ids
}

func crowded(n, partitions int) []string {
	ids := make([]string, 0, n)
	for i := 0; len(ids) < n; i++ {
		if id := endpointID(i); kafka.Partition([]byte(id), int32(partitions)) == 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// BenchmarkIsolation alternates clean and dirty phases five times in one run, at a
// fixed offered load of less than 40 % of the clean capacity, and compares medians.
func BenchmarkIsolation(b *testing.B) {
	for _, c := range []struct {
		name string
		ids  []string
	}{{"12Partitions", spread(isolationEndpoints)}, {"OnePartition", crowded(isolationEndpoints, 12)}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				isolate(b, c.ids)
			}
		})
	}
}

func isolate(b *testing.B, ids []string) {
	const rounds, rate, span = 5, 2_000, 10 * time.Second
	fake := testkit.NewFake(b)
	capacity := wholeWay(b, 60_000).rate
	if rate > 0.4*capacity {
		b.Fatalf("void: %d/s offered is more than 40 %% of the clean capacity of %.0f/s", rate, capacity)
	}
	b.Logf("capacity %.0f/s, offered %d/s (%.0f %%) for %s a phase", capacity, rate, 100*rate/capacity, span)
	var clean, dirty, delivered []float64
	for r := range rounds {
		var text [2]string
		for i, d := range []bool{false, true} {
			p := runPhase(b, fake, "iso"+strconv.Itoa(r)+strconv.FormatBool(d)+".", load{dirty: d, rate: rate, span: span, ids: ids})
			text[i] = p.String()
			if d {
				dirty = append(dirty, p.p99.Seconds()*1000)
				delivered = append(delivered, p.delivered)
			} else {
				clean = append(clean, p.p99.Seconds()*1000)
			}
		}
		b.Logf("round %d\n  clean %s\n  dirty %s", r+1, text[0], text[1]) // one call a round: go test cuts off after ten
	}
	b.ReportMetric(median(clean), "clean-p99-ms")
	b.ReportMetric(median(dirty), "dirty-p99-ms")
	b.ReportMetric(median(dirty)-median(clean), "added-ms")
	b.ReportMetric(median(delivered), "good-delivered")
}
