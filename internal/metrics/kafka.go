package metrics

import (
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// KafkaHook counts what all Kafka clients of a process do together.
//
// kprom is not used: it registers its metrics anew for each client and panics at the
// second one, and a process of ours has half a dozen clients, some of which are
// replaced while they run.
type KafkaHook struct {
	connected, refused prometheus.Counter
	throttled          prometheus.Counter
	took               [len(requestNames)]prometheus.Observer
	failed             [len(requestNames)]prometheus.Counter
	produced, out      *prometheus.CounterVec
	fetched, in        *prometheus.CounterVec

	all []prometheus.Collector
}

var requestNames = [...]string{"produce", "fetch", "commit", "group", "other"}

var (
	_ kgo.HookBrokerConnect       = (*KafkaHook)(nil)
	_ kgo.HookBrokerE2E           = (*KafkaHook)(nil)
	_ kgo.HookBrokerThrottle      = (*KafkaHook)(nil)
	_ kgo.HookProduceBatchWritten = (*KafkaHook)(nil)
	_ kgo.HookFetchBatchRead      = (*KafkaHook)(nil)
)

func newKafkaHook() *KafkaHook {
	connects, took, failed := kafkaConnects.counterVec(), kafkaRequests.histogramVec(), kafkaErrors.counterVec()
	h := &KafkaHook{
		connected: connects.WithLabelValues("ok"), refused: connects.WithLabelValues("failed"),
		throttled: kafkaThrottle.counter(),
		produced:  kafkaProduced.counterVec(), out: kafkaOut.counterVec(), fetched: kafkaFetched.counterVec(), in: kafkaIn.counterVec(),
	}
	for i, name := range requestNames {
		h.took[i], h.failed[i] = took.WithLabelValues(name), failed.WithLabelValues(name)
	}
	h.all = []prometheus.Collector{connects, took, failed, h.throttled, h.produced, h.out, h.fetched, h.in}
	return h
}

// Describe implements prometheus.Collector.
func (h *KafkaHook) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range h.all {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (h *KafkaHook) Collect(ch chan<- prometheus.Metric) {
	for _, c := range h.all {
		c.Collect(ch)
	}
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (h *KafkaHook) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		h.refused.Inc()
		return
	}
	h.connected.Inc()
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (h *KafkaHook) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	i := requestIndex(key)
	if e2e.Err() != nil {
		h.failed[i].Inc()
		return
	}
	h.took[i].Observe(e2e.DurationE2E().Seconds())
}

func requestIndex(key int16) int {
	switch kmsg.Key(key) {
	case kmsg.Produce:
		return 0
	case kmsg.Fetch:
		return 1
	case kmsg.OffsetCommit:
		return 2
	case kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.LeaveGroup, kmsg.ConsumerGroupHeartbeat:
		return 3
	default:
		return 4
	}
}

// OnBrokerThrottle implements kgo.HookBrokerThrottle.
func (h *KafkaHook) OnBrokerThrottle(_ kgo.BrokerMetadata, d time.Duration, _ bool) {
	h.throttled.Add(d.Seconds())
}

// OnProduceBatchWritten implements kgo.HookProduceBatchWritten.
func (h *KafkaHook) OnProduceBatchWritten(_ kgo.BrokerMetadata, topic string, _ int32, b kgo.ProduceBatchMetrics) {
	h.produced.WithLabelValues(topic).Add(float64(b.NumRecords))
	h.out.WithLabelValues(topic).Add(float64(b.CompressedBytes))
}

// OnFetchBatchRead implements kgo.HookFetchBatchRead.
func (h *KafkaHook) OnFetchBatchRead(_ kgo.BrokerMetadata, topic string, _ int32, b kgo.FetchBatchMetrics) {
	h.fetched.WithLabelValues(topic).Add(float64(b.NumRecords))
	h.in.WithLabelValues(topic).Add(float64(b.CompressedBytes))
}
