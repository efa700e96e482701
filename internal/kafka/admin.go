package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// NewAdmin makes a client for looking at and changing topics. Its Close closes it.
func (c Config) NewAdmin() (*kadm.Client, error) {
	cl, err := c.NewClient()
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(cl), nil
}

// Layout is what producers have to know about a topic.
type Layout struct {
	ID         [16]byte
	Partitions int32
}

// ErrNoTopic says that a topic does not exist.
var ErrNoTopic = errors.New("no such topic; create it with milena topics apply")

// IsNoTopic reports whether an error of any call says that a topic does not exist.
func IsNoTopic(err error) bool {
	return errors.Is(err, ErrNoTopic) || errors.Is(err, kerr.UnknownTopicOrPartition)
}

// TopicLayout asks for the layout of one topic. A missing one is ErrNoTopic.
func TopicLayout(ctx context.Context, adm *kadm.Client, topic string) (Layout, error) {
	details, err := adm.ListTopics(ctx, topic)
	if err == nil {
		err = details[topic].Err
	}
	switch d := details[topic]; {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return Layout{}, fmt.Errorf("%s: %w", topic, ErrNoTopic)
	case err != nil:
		return Layout{}, fmt.Errorf("topic %s: %w", topic, err)
	default:
		return Layout{ID: d.ID, Partitions: int32(len(d.Partitions))}, nil
	}
}
