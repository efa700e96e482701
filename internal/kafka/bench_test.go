package kafka

import (
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// BenchmarkWriter writes what the dispatcher writes most: attempt records of about
// 600 bytes in twelve partitions, 4,000 outstanding.
func BenchmarkWriter(b *testing.B) {
	for _, linger := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		for name, codec := range map[string]kgo.CompressionCodec{
			"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression(), "snappy": kgo.SnappyCompression(), "zstd": kgo.ZstdCompression(),
		} {
			b.Run(fmt.Sprintf("linger=%v/compression=%s", linger, name), func(b *testing.B) {
				benchmarkWriter(b, WithLinger(linger), WithCompression(codec))
			})
		}
	}
}

func benchmarkWriter(b *testing.B, opts ...WriterOption) {
	c := newCluster(b, kfake.SeedTopics(12, "webhooks.attempts"))
	cfg := configFor(c)
	sent := new(sentBytes)
	cfg.Hooks = []kgo.Hook{sent}
	w := newWriter(b, cfg, opts...)
	values := make([][]byte, 256)
	for i := range values {
		id := hex.EncodeToString(noise(i, 16))
		values[i] = fmt.Appendf(nil, `{"delivery_id":"webhooks.deliveries-00c0ffee-%d-%d.ep_%s","message_id":"msg_%s","endpoint_id":"ep_%s","event_id":"%s","source":"/shop","type":"order.created","outcome":"delivered","attempt":1,"origin":"webhooks.deliveries-00c0ffee-%d-%d","status":200,"url":"https://example.com/hooks/%s","started":"2026-01-02T03:04:05.%06dZ","duration_ms":%d.5,"dispatch_delay_ms":0.%d,"request_bytes":%d}`,
			i%12, i*7919, id[:8], id, id[:8], id[4:30], i%12, i*7919, id[:12], i*3001, i%90, i%1000, 500+i)
	}
	slots := make(chan struct{}, 4000)
	var wg sync.WaitGroup
	wg.Add(b.N)
	done := func(Written) { <-slots; wg.Done() }
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		slots <- struct{}{}
		w.Write(Message{Topic: "webhooks.attempts", Partition: int32(i % 12), Key: values[i%256][40:50], Value: values[i*31%256]}, done)
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
	b.ReportMetric(float64(sent.bytes.Load())/float64(b.N), "wire-bytes/write")
	b.ReportMetric(float64(b.N)/float64(sent.batches.Load()), "writes/batch")
}

// sentBytes counts what went to the broker.
type sentBytes struct{ bytes, batches atomic.Int64 }

func (s *sentBytes) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	s.bytes.Add(int64(m.CompressedBytes))
	s.batches.Add(1)
}
