package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Starts are the first offsets that still exist, by partition.
func (r *Reader) Starts(ctx context.Context, topic string) ([]int64, error) {
	return r.list(ctx, topic, func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
		return r.adm.ListStartOffsets(ctx, topics...)
	})
}

// Ends are the ends of what is committed, by partition: the offset after the last
// record that may be read, or the first one of an open transaction.
func (r *Reader) Ends(ctx context.Context, topic string) ([]int64, error) {
	return r.list(ctx, topic, func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
		return Ends(ctx, r.cl, true, topics...)
	})
}

// HighWatermarks are the ends of the log, by partition, open transactions included.
func (r *Reader) HighWatermarks(ctx context.Context, topic string) ([]int64, error) {
	return r.list(ctx, topic, func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
		return Ends(ctx, r.cl, false, topics...)
	})
}

// After are the first offsets with a timestamp at or after t, by partition; the end
// of the log where there is none.
func (r *Reader) After(ctx context.Context, topic string, t time.Time) ([]int64, error) {
	return r.list(ctx, topic, func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
		listed, err := r.adm.ListOffsetsAfterMilli(ctx, t.UnixMilli(), topics...)
		if err != nil {
			return listed, err
		}
		return listed, doubt(ctx, r.cl, listed, topics)
	})
}

// Partitions is the number of a topic's partitions, asked for anew.
func (r *Reader) Partitions(ctx context.Context, topic string) (int32, error) {
	r.forget(topic)
	t, err := r.find(ctx, topic)
	if err != nil {
		return 0, fmt.Errorf("asking for topic %s: %w", topic, err)
	}
	return int32(len(t.leaders)), nil
}

// list asks again while a partition has no leader, or one that does not know yet or does
// not answer (WithRetryFor). A topic that is unknown is none that is waited for, and nor
// are brokers of which none answers.
func (r *Reader) list(ctx context.Context, topic string, ask func(context.Context, ...string) (kadm.ListedOffsets, error)) ([]int64, error) {
	for deadline := time.Now().Add(r.opts.retryFor); ; {
		offsets, err := listOnce(ctx, topic, ask)
		var ke *kerr.Error
		if !errors.As(err, &ke) || !ke.Retriable || ke == kerr.UnknownTopicOrPartition || time.Now().After(deadline) {
			return offsets, err
		}
		select {
		case <-time.After(r.opts.pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
	}
}

func listOnce(ctx context.Context, topic string, ask func(context.Context, ...string) (kadm.ListedOffsets, error)) ([]int64, error) {
	listed, err := ask(ctx, topic)
	// Other brokers said who leads, and one of those does not answer: another may lead soon.
	var silent *kadm.ShardErrors
	if errors.As(err, &silent) && len(silent.Errs) > 0 && ctx.Err() == nil && isNoAnswer(silent.Errs[0].Err) {
		return nil, fmt.Errorf("asking for offsets of %s: broker %d, which leads a partition, does not answer: %w: %w",
			topic, silent.Errs[0].Broker.NodeID, silent.Errs[0].Err, kerr.LeaderNotAvailable)
	}
	if err != nil {
		return nil, fmt.Errorf("asking for offsets of %s: %w", topic, err)
	}
	ps := listed[topic]
	out := make([]int64, len(ps))
	for i, o := range ps {
		switch {
		case o.Err != nil:
			return nil, fmt.Errorf("asking for offsets of %s/%d: %w", topic, i, o.Err)
		case i < 0 || int(i) >= len(out):
			return nil, fmt.Errorf("asking for offsets of %s: %w", topic, kerr.UnknownTopicOrPartition)
		}
		out[i] = o.Offset
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("asking for offsets of %s: %w", topic, kerr.UnknownTopicOrPartition)
	}
	return out, nil
}

// isNoAnswer reports whether a broker was not there, where it may be a refusal to talk to us.
func isNoAnswer(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) || kgo.IsRetryableBrokerErr(err)
}

// TopicID is a topic's id; zero where the broker has none.
func (r *Reader) TopicID(ctx context.Context, topic string) ([16]byte, error) {
	t, err := r.find(ctx, topic)
	if err != nil {
		return t.id, fmt.Errorf("asking for topic %s: %w", topic, err)
	}
	return t.id, nil
}

// Topics are the names of all topics that begin with a prefix, in order.
func (r *Reader) Topics(ctx context.Context, prefix string) ([]string, error) {
	all, err := r.adm.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for topics: %w", err)
	}
	var out []string
	for _, name := range all.Names() {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	return out, nil
}
