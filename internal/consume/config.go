package consume

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
)

// InitialOffset says where a partition begins that has records but no usable commit.
type InitialOffset string

const (
	// InitialNone: such a partition is an error and is not consumed.
	InitialNone InitialOffset = ""
	// InitialEarliest: at the oldest record there is.
	InitialEarliest InitialOffset = "earliest"
	// InitialLatest: a partition without a commit begins at its end. One that has
	// lost records, or was made again, begins at the oldest record all the same: a
	// loss is no reason to skip what is left.
	InitialLatest InitialOffset = "latest"
)

// Protocol is the group protocol.
type Protocol string

const (
	// ProtocolClassic is the default: JoinGroup with the cooperative-sticky balancer.
	ProtocolClassic Protocol = "classic"
	// ProtocolConsumer is KIP-848, for Kafka 4.3 and later. The session timeout is the
	// broker's (consumer.session.timeout.ms of the group); where it does not tell,
	// SessionTimeout is taken for it.
	ProtocolConsumer Protocol = "consumer"
)

// Config says what a Loop reads and how. Zero values mean the default named there.
type Config struct {
	Kafka       kafka.Config
	Group       string
	Topics      []string
	TopicsRegex bool // Topics are regular expressions, as kgo.ConsumeRegex

	InitialOffset InitialOffset // default InitialNone
	GroupProtocol Protocol      // default ProtocolClassic

	SessionTimeout    time.Duration // default 45 s
	HeartbeatInterval time.Duration // default 3 s, at most a third of SessionTimeout
	RebalanceTimeout  time.Duration // default 60 s; at least RevokeBudget + 10 s
	CommitInterval    time.Duration // default 250 ms
	DrainBudget       time.Duration // of a shutdown; default 30 s
	RevokeBudget      time.Duration // of a revoke, while other members wait; default 5 s, at most

	FetchMaxWait           time.Duration // default 100 ms, at most 250 ms: a resumed partition waits for it
	FetchMaxPartitionBytes int32         // default 512 KiB
	FetchMaxBytes          int32         // default 16 MiB, for each broker

	// QueueBytes bounds the records of one partition that were polled and not yet
	// given to Take. Fetching pauses there, resumes at half of it, and then waits for
	// FetchMaxWait where nothing else is fetched from that broker: the half must last
	// as long. One hot partition whose Intake takes 25,000 records of 1 KB a second
	// got 12,400 with 2 MiB and 250 ms, 22,300 with 4 MiB and 100 ms.
	// Default 8 × FetchMaxPartitionBytes; one fetch more may come.
	QueueBytes int
	// MaxUnsettled bounds the records of one partition that were read and are not
	// done: fetching pauses there. Default 40,000. It is the last resort against
	// unbounded memory and must lie above the Intake's own bound: an Intake that
	// waits for it lets one slow endpoint stop the partition.
	MaxUnsettled int
	// WatchInterval is how often topics and brokers are looked at. Default 2 s.
	WatchInterval time.Duration

	// Start is called for each assignment on its own goroutine, before its first
	// Take. It may block, but should return when the assignment's Context ends: nil
	// where it has made no Intake until then.
	Start func(*Assignment) Intake

	// Assigned hears of each assignment as soon as it is known where it begins. Default
	// nobody. It must not block.
	Assigned func(Partition)

	Logger *slog.Logger // default slog.Default()
}

func (c Config) withDefaults() Config {
	set(&c.GroupProtocol, ProtocolClassic)
	set(&c.SessionTimeout, 45*time.Second)
	set(&c.HeartbeatInterval, min(3*time.Second, c.SessionTimeout/3))
	set(&c.RebalanceTimeout, 60*time.Second)
	set(&c.CommitInterval, 250*time.Millisecond)
	set(&c.DrainBudget, 30*time.Second)
	set(&c.RevokeBudget, 5*time.Second)
	set(&c.FetchMaxWait, 100*time.Millisecond)
	set(&c.FetchMaxPartitionBytes, 512<<10)
	set(&c.FetchMaxBytes, max(16<<20, c.FetchMaxPartitionBytes))
	set(&c.QueueBytes, 8*int(c.FetchMaxPartitionBytes))
	set(&c.MaxUnsettled, 40_000)
	set(&c.WatchInterval, 2*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = c.Logger.With("group", c.Group)
	return c
}

func set[T comparable](v *T, fallback T) {
	var zero T
	if *v == zero {
		*v = fallback
	}
}

func (c *Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Group == "" {
		bad("no group")
	}
	if len(c.Topics) == 0 {
		bad("no topics")
	}
	for _, t := range c.Topics {
		if _, err := regexp.Compile(t); c.TopicsRegex && err != nil {
			bad("topics: %w", err)
		}
	}
	if c.Start == nil {
		bad("no Start")
	}
	switch c.InitialOffset {
	case InitialNone, InitialEarliest, InitialLatest:
	default:
		bad("initial offset %q: want earliest or latest", c.InitialOffset)
	}
	if c.GroupProtocol != ProtocolClassic && c.GroupProtocol != ProtocolConsumer {
		bad("group protocol %q: want classic or consumer", c.GroupProtocol)
	}
	if c.FetchMaxWait > 250*time.Millisecond {
		bad("fetch max wait %s: at most 250ms, or a resumed partition waits longer", c.FetchMaxWait)
	}
	if c.RevokeBudget > 5*time.Second {
		bad("revoke budget %s: at most 5s, the other members wait for it", c.RevokeBudget)
	}
	if c.RebalanceTimeout < c.RevokeBudget+10*time.Second {
		bad("rebalance timeout %s: at least 10s more than the revoke budget of %s", c.RebalanceTimeout, c.RevokeBudget)
	}
	if c.HeartbeatInterval > c.SessionTimeout/3 {
		bad("heartbeat interval %s: at most a third of the session timeout of %s", c.HeartbeatInterval, c.SessionTimeout)
	}
	if len(errs) > 0 {
		return fmt.Errorf("consume: %w", errors.Join(errs...))
	}
	return nil
}

// groupOpts are the kgo options of a member, without the callbacks.
func (c *Config) groupOpts() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.ConsumerGroup(c.Group),
		kgo.ConsumeTopics(c.Topics...),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(c.SessionTimeout),
		kgo.HeartbeatInterval(c.HeartbeatInterval),
		kgo.RebalanceTimeout(c.RebalanceTimeout),
		// Where a partition begins is decided in reset.go; kgo never resets by itself.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// A transaction ends with a marker, which has an offset of its own: without
		// it the watermark, and so the lag, never reaches the end of the log.
		kgo.KeepControlRecords(),
		kgo.FetchMaxWait(c.FetchMaxWait),
		kgo.FetchMaxPartitionBytes(c.FetchMaxPartitionBytes),
		kgo.FetchMaxBytes(c.FetchMaxBytes),
		// A new topic of a regular expression should be found before its records are old.
		kgo.MetadataMaxAge(30 * time.Second),
	}
	if c.TopicsRegex {
		opts = append(opts, kgo.ConsumeRegex())
	}
	if c.GroupProtocol == ProtocolConsumer {
		return append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	return append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
}
