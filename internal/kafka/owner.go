package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// GroupMember is the member of a consumer group that owns a partition.
type GroupMember struct {
	ClientID string `json:"client_id"`
	Host     string `json:"host"`
}

// PartitionOwner asks the group's coordinator who owns a partition, in a group of
// either protocol. It returns nil where nobody does.
func PartitionOwner(ctx context.Context, cl *kgo.Client, group, topic string, partition int32) (*GroupMember, error) {
	adm := kadm.NewClient(cl)
	consumer, err := adm.DescribeConsumerGroups(ctx, group)
	if err == nil && consumer[group].Err == nil {
		for _, m := range consumer[group].Members {
			if m.Assignment.Lookup(topic, partition) {
				return &GroupMember{m.ClientID, m.ClientHost}, nil
			}
		}
		return nil, nil //nolint:nilnil // nobody is an answer
	}
	// A group of the classic protocol, or a broker that knows no other.
	classic, err := adm.DescribeGroups(ctx, group)
	if err == nil {
		err = classic[group].Err
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil //nolint:nilnil // nobody has ever joined
	}
	if err != nil {
		return nil, fmt.Errorf("asking who owns %s/%d in group %s: %w", topic, partition, group, err)
	}
	for _, m := range classic[group].Members {
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range a.Topics {
				for _, p := range t.Partitions {
					if t.Topic == topic && p == partition {
						return &GroupMember{m.ClientID, m.ClientHost}, nil
					}
				}
			}
		}
	}
	return nil, nil //nolint:nilnil // nobody is an answer
}
