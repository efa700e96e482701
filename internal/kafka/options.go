package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/schemas"
)

// WriterOption changes one default of a Writer.
type WriterOption func(*writerOptions)

type writerOptions struct {
	linger             time.Duration
	compression        kgo.CompressionCodec
	stallAfter         time.Duration
	stuckAfter         time.Duration
	retryMin, retryMax time.Duration
}

func defaultWriterOptions() writerOptions {
	return writerOptions{
		linger:      DefaultLinger,
		compression: kgo.Lz4Compression(),
		stallAfter:  time.Second,
		stuckAfter:  20 * time.Second, // in which kgo gives up any request: 10 s that the broker has, and 10 s more
		retryMin:    100 * time.Millisecond,
		retryMax:    5 * time.Second,
	}
}

// DefaultLinger and lz4 are the defaults of Writer, by measurement: 30,000 attempt records a second into twelve
// partitions on two cores, client and embedded broker together, took 5.3 µs of CPU
// each without linger and compression (5.7 with lz4), 3.1 with 2 ms and lz4 in less
// than half the batches; half of them are acknowledged within 3 ms. snappy is about
// as cheap and sends more bytes, zstd costs twice as much. BenchmarkWriter shows
// the rate that can be reached.
const DefaultLinger = 2 * time.Millisecond

// WithLinger is how long a batch may wait for more records; default DefaultLinger.
func WithLinger(d time.Duration) WriterOption { return func(o *writerOptions) { o.linger = d } }

// WithCompression chooses the codec of batches; default lz4.
func WithCompression(c kgo.CompressionCodec) WriterOption {
	return func(o *writerOptions) { o.compression = c }
}

// WithStallAfter is how old a write without an answer must be before BlockedSince
// speaks of it; default 1s.
func WithStallAfter(d time.Duration) WriterOption { return func(o *writerOptions) { o.stallAfter = d } }

// withStuckAfter is how long the client may say nothing of a partition, and then how
// long its leader must answer others, until the client has lost sight of its writes;
// default 20s, for tests.
func withStuckAfter(d time.Duration) WriterOption { return func(o *writerOptions) { o.stuckAfter = d } }

// WithRetry are the first and the longest pause between rounds after a refusal;
// default 100ms and 5s.
func WithRetry(first, longest time.Duration) WriterOption {
	return func(o *writerOptions) { o.retryMin, o.retryMax = first, longest }
}

// Sizes are the max.message.bytes of the topics, in steps, so that what was read
// from one topic always fits into the next: a producer's largest record, with our
// headers, fits into deliveries on its way back from a tier, and whatever fits into
// deliveries fits into hold, the tiers and dlq.
type Sizes struct {
	Producer int32 // what producers may write, by contract; default 1 MiB
	Room     int32 // added for deliveries, and once more for what only we write; default 32 KiB
}

// DefaultSizes are 1 MiB for producers and 64 KiB more on what we write.
var DefaultSizes = Sizes{Producer: 1 << 20, Room: 32 << 10}

// Deliveries is max.message.bytes of deliveries.
func (s Sizes) Deliveries() int32 { return s.Producer + s.Room }

// Ours is max.message.bytes of every topic that only Milena writes.
func (s Sizes) Ours() int32 { return s.Producer + 2*s.Room }

// batchBytes keeps batches below what their topic takes, so that a batch is
// refused only where an operator has set something else.
func (s Sizes) batchBytes(n schemas.Names) func(topic string) int32 {
	return func(topic string) int32 {
		if topic == n.Deliveries() {
			return s.Deliveries()
		}
		return s.Ours()
	}
}
