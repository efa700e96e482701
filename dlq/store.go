package dlq

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// Store is the dead letters of an installation. It holds one client for reading and
// is safe for concurrent use. Close it.
type Store struct {
	cfg    kafka.Config
	names  schemas.Names
	topic  string
	reader *kafka.Reader
	log    *slog.Logger

	newWriter func() (writer, error)
	drainFor  time.Duration // for acknowledgements, after a run was ended

	done, of atomic.Int64 // see Reading
}

// Snapshot is an end offset by partition: what a run may touch lies below.
type Snapshot map[int32]int64

// Open makes a Store. Nothing is dialled yet; kafka.Error if the configuration is wrong.
func Open(cfg kafka.Config) (*Store, error) {
	cfg = cfg.WithDefaults()
	reader, err := kafka.NewReader(cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, names: cfg.Names, topic: cfg.Names.DLQ(), reader: reader, log: cfg.Logger, drainFor: 10 * time.Second}
	s.newWriter = func() (writer, error) { return kafka.NewWriter(cfg) }
	return s, nil
}

// writer is the part of kafka.Writer that a run needs.
type writer interface {
	Write(m kafka.Message, done func(kafka.Written))
	Close(ctx context.Context) error
}

// Close closes the client.
func (s *Store) Close() { s.reader.Close() }

// explain names the right that is missing.
func explain(err error, topic, operation string) error {
	return kafka.NameRight(err, operation, "Topic", topic)
}

// commits are how far a role has come, by topic and partition.
func (s *Store) commits(ctx context.Context, role string) (map[string]map[int32]kafka.Commit, error) {
	group := s.names.Group(role)
	committed, err := s.reader.Commits(ctx, group)
	return committed, kafka.NameRight(err, "Describe", "Group", group)
}

// Snapshot is the end of the topic now.
func (s *Store) Snapshot(ctx context.Context) (Snapshot, error) {
	ends, err := s.reader.Ends(ctx, s.topic)
	if err != nil {
		return nil, explain(err, s.topic, "Read")
	}
	snap := make(Snapshot, len(ends))
	for p, end := range ends {
		snap[int32(p)] = end
	}
	return snap, nil
}

// Resolve completes a filter with what only the topic knows: its retention.
func (s *Store) Resolve(ctx context.Context, f Filter) (Filter, error) {
	if f.ExpiresBefore.IsZero() {
		return f, nil
	}
	keep, err := s.retention(ctx, s.topic)
	if err != nil {
		return f, err
	}
	if keep > 0 {
		f.WrittenBefore = f.ExpiresBefore.Add(-keep)
	}
	return f, nil
}

// retention is for how long a topic keeps a record; 0: for ever.
func (s *Store) retention(ctx context.Context, topic string) (time.Duration, error) {
	adm, err := s.cfg.NewAdmin()
	if err != nil {
		return 0, err
	}
	defer adm.Close()
	configs, err := adm.DescribeTopicConfigs(ctx, topic)
	if err == nil {
		var rc kadm.ResourceConfig
		if rc, err = configs.On(topic, nil); err == nil {
			err = rc.Err
		}
		for _, c := range rc.Configs {
			if ms, bad := strconv.ParseInt(c.MaybeValue(), 10, 64); c.Key == "retention.ms" && bad == nil && ms > 0 {
				return time.Duration(ms) * time.Millisecond, nil
			}
		}
	}
	if err != nil {
		return 0, fmt.Errorf("asking for the retention of %s: %w", topic, explain(err, topic, "DescribeConfigs"))
	}
	return 0, nil
}

// partitionsOf are those, of n, in which what is kept by endpoint can be of some; all
// where none is named.
func partitionsOf(endpoints []string, n int32) (parts []int32) {
	if len(endpoints) == 0 {
		return every(n)
	}
	for _, id := range endpoints {
		parts = append(parts, kafka.PartitionsEver([]byte(id), n)...)
	}
	slices.Sort(parts)
	return slices.Compact(parts)
}

// every is all of n partitions.
func every(n int32) []int32 {
	all := make([]int32, n)
	for p := range n {
		all[p] = p
	}
	return all
}

// width is how many partitions are read at the same time, and chunkFor how many
// bytes of each are read at once: 16 MiB at most are in memory, whatever the topic's
// size. Chunks of more than 512 KiB are slower again: they fall out of the cache.
func width(partitions int) int { return max(1, min(partitions, 2*runtime.GOMAXPROCS(0), 8)) }

func chunkFor(parallel int) int32 { return int32(max(128<<10, min(512<<10, (8<<20)/max(1, parallel)))) }
