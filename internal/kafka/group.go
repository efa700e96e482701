package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// GroupMember is the member of a consumer group that owns a partition.
type GroupMember struct {
	ClientID string `json:"client_id"`
	Host     string `json:"host"`
}

// Group is a consumer group of either protocol, as its coordinator knows it. One that
// nobody has ever joined has no members.
type Group struct {
	Members int
	owners  map[string]map[int32]GroupMember
}

// Owner is the member that owns a partition; nil: nobody does.
func (g *Group) Owner(topic string, partition int32) *GroupMember {
	if m, ok := g.owners[topic][partition]; ok {
		return &m
	}
	return nil
}

func (g *Group) own(topic string, partition int32, m GroupMember) {
	if g.owners == nil {
		g.owners = map[string]map[int32]GroupMember{}
	}
	if g.owners[topic] == nil {
		g.owners[topic] = map[int32]GroupMember{}
	}
	g.owners[topic][partition] = m
}

// Group asks a group's coordinator who its members are and what they own.
func (r *Reader) Group(ctx context.Context, group string) (Group, error) {
	return describeGroup(ctx, r.adm, group)
}

func describeGroup(ctx context.Context, adm *kadm.Client, group string) (g Group, err error) {
	consumer, err := adm.DescribeConsumerGroups(ctx, group)
	if err == nil && consumer[group].Err == nil {
		for _, m := range consumer[group].Members {
			g.Members++
			for topic, parts := range m.Assignment {
				for p := range parts {
					g.own(topic, p, GroupMember{m.ClientID, m.ClientHost})
				}
			}
		}
		return g, nil
	}
	// A group of the classic protocol, or a broker that knows no other.
	classic, err := adm.DescribeGroups(ctx, group)
	if err == nil {
		err = classic[group].Err
	}
	if errors.Is(err, kerr.GroupIDNotFound) {
		return g, nil // nobody has ever joined
	}
	if err != nil {
		return g, fmt.Errorf("asking for the members of group %s: %w", group, err)
	}
	for _, m := range classic[group].Members {
		g.Members++
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range a.Topics {
				for _, p := range t.Partitions {
					g.own(t.Topic, p, GroupMember{m.ClientID, m.ClientHost})
				}
			}
		}
	}
	return g, nil
}

// Commit is what a group has committed for a partition.
type Commit struct {
	Offset   int64
	Metadata string
}

// Commits are a group's commits, by topic and partition. A partition without one is
// missing.
func (r *Reader) Commits(ctx context.Context, group string) (map[string]map[int32]Commit, error) {
	fetched, err := r.adm.FetchOffsets(ctx, group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil //nolint:nilnil // a nil map has no commits
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the commits of group %s: %w", group, err)
	}
	out := map[string]map[int32]Commit{}
	for _, parts := range fetched {
		for _, o := range parts {
			if o.Err != nil {
				return nil, fmt.Errorf("asking for the commit of group %s on %s/%d: %w", group, o.Topic, o.Partition, o.Err)
			}
			if o.At < 0 {
				continue
			}
			if out[o.Topic] == nil {
				out[o.Topic] = map[int32]Commit{}
			}
			out[o.Topic][o.Partition] = Commit{o.At, o.Metadata}
		}
	}
	return out, nil
}
