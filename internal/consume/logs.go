package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/internal/kafka"
)

// logState is what a broker says of a partition.
type logState struct {
	topicID    [16]byte
	start, end int64
}

// askLogs asks the brokers for the topics' ids and the partitions' starts and ends
// until they answer for all of them, or ctx ends.
func (o *ownership) askLogs(ctx context.Context, ps []Partition) (map[Partition]logState, error) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		logs, err := o.askLogsOnce(ctx, ps)
		if err == nil {
			return logs, nil
		}
		if ctx.Err() == nil {
			o.log.Warn("asking where the partitions begin and end; trying again", "err", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, ctx.Err()
		case <-t.C:
		}
	}
}

func (o *ownership) askLogsOnce(ctx context.Context, ps []Partition) (map[Partition]logState, error) {
	var topics []string
	for _, p := range ps {
		if !slices.Contains(topics, p.Topic) {
			topics = append(topics, p.Topic)
		}
	}
	o.mu.Lock()
	cl := o.cl
	o.mu.Unlock()
	adm := kadm.NewClient(cl)
	details, err := adm.ListTopics(ctx, topics...)
	if err == nil {
		err = details.Error()
	}
	if err != nil {
		return nil, err
	}
	starts, err := adm.ListStartOffsets(ctx, topics...)
	ends, err2 := kafka.Ends(ctx, cl, false, topics...)
	if err = errors.Join(err, err2, starts.Error(), ends.Error()); err != nil {
		return nil, err
	}
	logs := make(map[Partition]logState)
	ends.Each(func(end kadm.ListedOffset) {
		if start, ok := starts.Lookup(end.Topic, end.Partition); ok {
			logs[Partition{end.Topic, end.Partition}] = logState{details[end.Topic].ID, start.Offset, end.Offset}
		}
	})
	for _, p := range ps {
		if _, ok := logs[p]; !ok {
			return nil, fmt.Errorf("%s/%d is assigned, and no broker knows it yet", p.Topic, p.Partition)
		}
	}
	return logs, nil
}

// oldest returns the age of the oldest record; 0 where there is none or nobody says.
func (o *ownership) oldest(ctx context.Context, p Partition) time.Duration {
	o.mu.Lock()
	adm := kadm.NewClient(o.cl)
	o.mu.Unlock()
	listed, err := adm.ListOffsetsAfterMilli(ctx, 0, p.Topic)
	if at, ok := listed.Lookup(p.Topic, p.Partition); err == nil && ok && at.Err == nil && at.Timestamp > 0 {
		return max(0, time.Since(time.UnixMilli(at.Timestamp)))
	}
	return 0
}
