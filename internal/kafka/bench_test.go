package kafka

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/milena-project/milena/schemas"
)

// BenchmarkWriter writes what the dispatcher writes most: attempt records of about
// 600 bytes in twelve partitions, 4,000 outstanding.
func BenchmarkWriter(b *testing.B) {
	for _, linger := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		for _, codec := range []Compression{CompressionNone, CompressionLZ4, CompressionSnappy, CompressionZstd} {
			b.Run(fmt.Sprintf("linger=%v/compression=%s", linger, codec), func(b *testing.B) {
				benchmarkWriter(b, WithLinger(linger), WithCompression(codec))
			})
		}
	}
}

func benchmarkWriter(b *testing.B, opts ...WriterOption) {
	c := newCluster(b, kfake.SeedTopics(12, "webhooks.attempts"))
	w := newWriter(b, configFor(c), opts...)
	value := fmt.Appendf(nil, `{"delivery_id":"webhooks.deliveries-00c0ffee-3-4711.ep_shop","message_id":"msg_abcdefghijklmnopqrstuvwxyz","endpoint_id":"ep_shop","event_id":"9f1c1f0a","source":"/shop","type":"order.created","outcome":"delivered","attempt":1,"origin":"webhooks.deliveries-00c0ffee-3-4711","status":200,"url":"https://example.com/hooks/orders","started":%q,"duration_ms":12.5,"dispatch_delay_ms":0.8,"request_bytes":1024}`, time.Now())
	value = append(value, noise(1, 150)...)
	headers := []schemas.Header{{Key: "content-type", Value: []byte("application/json")}, {Key: "traceparent", Value: noise(2, 55)}}
	slots := make(chan struct{}, 4000)
	var wg sync.WaitGroup
	wg.Add(b.N)
	done := func(Written) { <-slots; wg.Done() }
	b.ReportAllocs()
	b.SetBytes(int64(len(value)))
	b.ResetTimer()
	for i := range b.N {
		slots <- struct{}{}
		w.Write(Message{Topic: "webhooks.attempts", Partition: int32(i % 12), Key: []byte("ep_shop"), Value: value, Headers: headers}, done)
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}
