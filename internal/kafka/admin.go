package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

// MissingTopicsError says which of Milena's topics do not exist. It is an ErrNoTopic.
type MissingTopicsError struct {
	Topics []string // in the order of DesiredTopics
	All    bool     // none exists: the cluster or the prefix is another one, or nothing was made yet
	Prefix string
}

func (e *MissingTopicsError) Error() string {
	switch {
	case e.All:
		return fmt.Sprintf("none of Milena's topics is there (prefix %q); milena topics apply makes them", e.Prefix)
	case len(e.Topics) == 1:
		return fmt.Sprintf("topic %s is missing; milena topics apply makes it", e.Topics[0])
	}
	return fmt.Sprintf("topics %s are missing; milena topics apply makes them", strings.Join(e.Topics, ", "))
}

// Unwrap returns ErrNoTopic.
func (e *MissingTopicsError) Unwrap() error { return ErrNoTopic }

// MissingTopics asks which of the topics that c wants do not exist; nil if none.
func MissingTopics(ctx context.Context, adm *kadm.Client, c TopicsConfig) (*MissingTopicsError, error) {
	c = c.WithDefaults()
	specs := DesiredTopics(c)
	names := make([]string, 0, len(specs))
	for _, s := range specs {
		names = append(names, s.Name)
	}
	details, err := detailsOf(ctx, adm, names)
	if err != nil {
		return nil, fmt.Errorf("asking for Milena's topics: %w", err)
	}
	missing := &MissingTopicsError{Prefix: c.Names.Prefix}
	for _, name := range names {
		if d, ok := details[name]; !ok || errors.Is(d.Err, kerr.UnknownTopicOrPartition) {
			missing.Topics = append(missing.Topics, name)
		}
	}
	if missing.All = len(missing.Topics) == len(names); len(missing.Topics) == 0 {
		return nil, nil
	}
	return missing, nil
}
