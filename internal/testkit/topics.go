package testkit

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AwaitTopics waits until each of the brokers knows the topics and a leader of each of
// their partitions. Who has made a topic has the controller's word for it; brokers learn
// of it a little later, each at its own time, and until then they call it unknown to
// whoever happens to ask them. All of the brokers must run.
func AwaitTopics(t testing.TB, brokers []string, topics ...string) {
	t.Helper()
	await(t, brokers, topics, func(topic *kmsg.MetadataResponseTopic) string {
		err := kerr.ErrorForCode(topic.ErrorCode)
		for _, p := range topic.Partitions {
			err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// AwaitNoTopics waits until none of the brokers knows the topics any more: until it has
// heard that a topic is deleted, a broker takes records for it.
func AwaitNoTopics(t testing.TB, brokers []string, topics ...string) {
	t.Helper()
	await(t, brokers, topics, func(topic *kmsg.MetadataResponseTopic) string {
		if !errors.Is(kerr.ErrorForCode(topic.ErrorCode), kerr.UnknownTopicOrPartition) {
			return "it is there"
		}
		return ""
	})
}

// await asks each broker by a connection of its own: a client asks any that it has heard
// of, and kadm answers from what a client remembers.
func await(t testing.TB, brokers, topics []string, wrong func(*kmsg.MetadataResponseTopic) string) {
	t.Helper()
	for _, addr := range brokers {
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
		if err != nil {
			t.Fatalf("kafka client: %v", err)
		}
		req := kmsg.NewPtrMetadataRequest()
		for _, topic := range topics {
			one := kmsg.NewMetadataRequestTopic()
			one.Topic = kmsg.StringPtr(topic)
			req.Topics = append(req.Topics, one)
		}
		Eventually(t, 30*time.Second, func() string {
			resp, err := cl.SeedBrokers()[0].RetriableRequest(t.Context(), req)
			if err != nil {
				return fmt.Sprintf("%s: %v", addr, err)
			}
			for _, topic := range resp.(*kmsg.MetadataResponse).Topics {
				if w := wrong(&topic); w != "" {
					return fmt.Sprintf("%s: topic %s: %s", addr, *topic.Topic, w)
				}
			}
			return ""
		})
		cl.Close()
	}
}
