package retrytopics

import (
	"log/slog"
	"time"

	"github.com/milena-project/milena/internal/consume"
	"github.com/milena-project/milena/internal/kafka"
)

// Defaults of ReleaserConfig.
const (
	DefaultNearBytes     = 64 << 20
	DefaultInFlightBytes = 32 << 20
	DefaultBacklogEvery  = 15 * time.Second
	// DefaultFetchPartitionBytes is small because a tier's partition may keep what
	// it has fetched for as long as the tier is: tiers × partitions × this, and as
	// much again in the queue, is what a releaser holds of them.
	DefaultFetchPartitionBytes = 256 << 10
)

// ReleaserConfig configures a Releaser. Kafka, Writer, Parker, DeadLetter and
// DeliveriesPartitions are required.
type ReleaserConfig struct {
	Kafka                kafka.Config
	Writer               Writer
	Parker               *Parker
	DeadLetter           DeadLetter
	DeliveriesPartitions int32 // partition count of the deliveries topic

	NearBytes     int64            // bound of what waits in memory for its last ten seconds; default 64 MiB
	InFlightBytes int64            // bound of writes that are not acknowledged; default 32 MiB
	BacklogEvery  time.Duration    // between two looks at the backlog; default 15s
	Now           func() time.Time // the wall clock; default time.Now
	Hooks         []Hook
	Logger        *slog.Logger // default: that of Kafka

	// Consume has timings and sizes of the group's member; zero: its defaults, and
	// DefaultFetchPartitionBytes. Kafka, Group, Topics, InitialOffset, Start and
	// Logger are set here.
	Consume consume.Config
}

// WithDefaults fills in what was left out.
func (c ReleaserConfig) WithDefaults() ReleaserConfig {
	c.Kafka = c.Kafka.WithDefaults()
	if c.NearBytes <= 0 {
		c.NearBytes = DefaultNearBytes
	}
	if c.InFlightBytes <= 0 {
		c.InFlightBytes = DefaultInFlightBytes
	}
	if c.BacklogEvery <= 0 {
		c.BacklogEvery = DefaultBacklogEvery
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = c.Kafka.Logger
	}
	if c.Consume.FetchMaxPartitionBytes <= 0 {
		c.Consume.FetchMaxPartitionBytes = DefaultFetchPartitionBytes
	}
	if c.Consume.QueueBytes <= 0 {
		c.Consume.QueueBytes = int(c.Consume.FetchMaxPartitionBytes)
	}
	if c.Consume.MaxUnsettled <= 0 {
		// The bounds in bytes decide, not this number: it lies above what they let in.
		c.Consume.MaxUnsettled = int((c.NearBytes+c.InFlightBytes)/heldOverhead) + 10_000
	}
	return c
}
