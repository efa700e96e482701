package retrytopics

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/schemas"
)

// TierBacklog is what stands in one tier and is not settled by the releaser's group.
type TierBacklog struct {
	Topic   string
	Delay   time.Duration
	Waiting int64 // not settled yet, and not overdue
	Overdue int64 // should have moved on by now
	// OldestOverdue is since when the oldest of them has been ready, zero while none
	// is; only in what HookBacklog gets, and only for the partitions of that process.
	OldestOverdue time.Time
}

// overdueGrace is what a record may take from its readiness to its commit beside
// the ten seconds in memory: a fetch, a write and a commit interval.
const overdueGrace = 2 * time.Second

// ReadBacklog counts what waits and what is overdue in every tier that exists,
// shortest first. It asks Kafka alone, so it works when every process is dead. A
// record counts as overdue when the broker appended it longer ago than the tier's
// delay and ten seconds, so the skew of the broker's clock is in the numbers.
func ReadBacklog(ctx context.Context, adm *kadm.Client, names schemas.Names, now time.Time) ([]TierBacklog, error) {
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	var tiers []TierBacklog
	for _, topic := range topics.Names() {
		if strings.HasPrefix(topic, names.RetryPrefix()) {
			delay, _ := ParseTier(names, topic)
			tiers = append(tiers, TierBacklog{Topic: topic, Delay: delay})
		}
	}
	if len(tiers) == 0 {
		return nil, nil
	}
	slices.SortFunc(tiers, func(a, b TierBacklog) int { return int(a.Delay/time.Second - b.Delay/time.Second) })
	all := make([]string, len(tiers))
	for i := range tiers {
		all[i] = tiers[i].Topic
	}
	log, err := readOffsets(ctx, adm, names, all)
	if err != nil {
		return nil, err
	}
	for i := range tiers {
		t := &tiers[i]
		before := now.Add(-t.Delay - Near - overdueGrace)
		overdueTo, err := adm.ListOffsetsAfterMilli(ctx, before.UnixMilli(), t.Topic)
		if err = errors.Join(err, overdueTo.Error()); err != nil {
			return nil, err
		}
		overdueTo.Each(func(to kadm.ListedOffset) {
			from, end := log.open(t.Topic, to.Partition)
			overdue := max(0, to.Offset-from)
			t.Overdue += overdue
			t.Waiting += max(0, end-from-overdue)
		})
	}
	return tiers, nil
}

// tierOffsets are the bounds of what is not settled.
type tierOffsets struct {
	starts, ends kadm.ListedOffsets
	commits      kadm.OffsetResponses
}

func readOffsets(ctx context.Context, adm *kadm.Client, names schemas.Names, topics []string) (o tierOffsets, err error) {
	if o.starts, err = adm.ListStartOffsets(ctx, topics...); err != nil {
		return o, err
	}
	// The commits before the ends: what moves on in between is counted, not missed.
	if o.commits, err = adm.FetchOffsets(ctx, names.Group("releaser")); err != nil {
		return o, err
	}
	if o.ends, err = adm.ListEndOffsets(ctx, topics...); err != nil {
		return o, err
	}
	return o, errors.Join(o.starts.Error(), o.commits.Error(), o.ends.Error())
}

func (o tierOffsets) open(topic string, partition int32) (from, end int64) {
	start, _ := o.starts.Lookup(topic, partition)
	last, _ := o.ends.Lookup(topic, partition)
	from = start.Offset
	if c, ok := o.commits.Lookup(topic, partition); ok {
		from = max(from, c.At)
	}
	return from, last.Offset
}
