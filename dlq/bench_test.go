package dlq

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// buried is a world with n letters of 37 endpoints, 1 KiB each, written in the
// batches that a busy dispatcher makes.
func buried(b *testing.B, n int) *world {
	b.Helper()
	w := newWorldFor(b)
	var ids []string
	for i := range 37 {
		ids = append(ids, fmt.Sprintf("ep_%d", i))
	}
	w.endpoint(ids...)
	fast, err := kafka.NewWriter(w.cfg, kafka.WithLinger(20*time.Millisecond))
	if err != nil {
		b.Fatal(err)
	}
	pad := fmt.Appendf(nil, `{"pad":"%0900d"}`, 1)
	for i := range n {
		d := w.delivery(ids[i%len(ids)])
		d.Payload = pad
		l := schemas.NewLetter(d, schemas.ReasonExhausted, time.Now())
		rec := l.Record()
		fast.Write(kafka.Message{Topic: w.names.DLQ(), Partition: partitionOf(l.EndpointID), Key: rec.Key, Value: rec.Value, Headers: rec.Headers}, nil)
		if i%20_000 == 0 {
			if err := fast.Flush(w.ctx()); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := fast.Close(w.ctx()); err != nil {
		b.Fatal(err)
	}
	return w
}

const benchLetters = 200_000

func BenchmarkSummary(b *testing.B) {
	w := buried(b, benchLetters)
	for b.Loop() {
		sum, err := w.store.Summary(w.ctx(), Filter{})
		if err != nil || sum.Count != benchLetters {
			b.Fatal(sum, err)
		}
	}
	b.ReportMetric(benchLetters*float64(b.N)/b.Elapsed().Seconds(), "letters/s")
}

func BenchmarkReplay(b *testing.B) {
	w := buried(b, benchLetters)
	plan := w.plan(Job{})
	b.ResetTimer()
	began := time.Now()
	if rep, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{}); err != nil || rep.Settled != benchLetters {
		b.Fatal(rep, err)
	}
	b.ReportMetric(benchLetters/time.Since(began).Seconds(), "letters/s")
}

// BenchmarkMemory is what a letter costs while it is read and while it is selected.
func BenchmarkMemory(b *testing.B) {
	const n = 5_000_000 / 4 // one partition of four of five million
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		var s seen
		sel := &selected{unfit: func(*Entry) string { return "" }}
		sel.Shares, sel.Unfit = map[string]*Share{}, map[string]int64{}
		e := Entry{Letter: schemas.Letter{Reason: schemas.ReasonGone}}
		key := []byte("webhooks.deliveries-01020304-3-00000000.ep_1.0")
		for i := range n {
			copy(key[29:], fmt.Appendf(nil, "%08d", i))
			s.add(hashOf(key))
			e.Offset = int64(i)
			if err := sel.add(&e); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heap()-before)/n, "bytes/letter")
		runtime.KeepAlive(&s)
		runtime.KeepAlive(sel)
	}
}
