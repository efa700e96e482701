package retrytopics

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/internal/consume"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/offsets"
	"github.com/milena-project/milena/schemas"
)

// TierBacklog is what stands in one tier and is not settled by the releaser's group, nor
// done above its commit.
type TierBacklog struct {
	Topic   string
	Delay   time.Duration
	Waiting int64 // not settled yet, and not overdue
	Overdue int64 // should have moved on by now
	// OldestOverdue is since when the oldest of them has been ready, zero while none
	// is; only in what HookBacklog gets, and only for the partitions of that process.
	OldestOverdue time.Time
}

// ReadBacklog counts what waits and what is overdue in every tier that exists,
// shortest first. It asks Kafka alone, so it works when every process is dead, and goes
// by what the records themselves say, as milena lag does: no clock of a broker's is in
// the numbers.
func ReadBacklog(ctx context.Context, adm *kadm.Client, r *kafka.Reader, names schemas.Names, now time.Time) ([]TierBacklog, error) {
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
	log.topics = topics
	if err != nil {
		return nil, err
	}
	for i := range tiers {
		t := &tiers[i]
		for partition := range log.ends[t.Topic] {
			from, end, done := log.open(t.Topic, partition)
			boundary, err := FirstWaiting(ctx, r, t.Topic, partition, from, end, now)
			if err != nil {
				return nil, err
			}
			t.Overdue += boundary - from - done.Within(from, boundary)
			t.Waiting += end - boundary - done.Within(boundary, end)
		}
	}
	return tiers, nil
}

// tierOffsets are the bounds of what is not settled.
type tierOffsets struct {
	topics       kadm.TopicDetails
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

// open is where what is not settled begins and ends, and what above it is done.
func (o tierOffsets) open(topic string, partition int32) (from, end int64, done offsets.Set) {
	start, _ := o.starts.Lookup(topic, partition)
	last, _ := o.ends.Lookup(topic, partition)
	from = start.Offset
	if c, ok := o.commits.Lookup(topic, partition); ok {
		from = max(from, c.At)
		done = consume.Completed(c.Metadata, o.topics[topic].ID, c.At)
	}
	return from, max(from, last.Offset), done
}
