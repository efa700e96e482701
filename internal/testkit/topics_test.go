package testkit_test

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/testkit"
)

// One of three brokers has heard of a topic, or of its end, when it is asked a fourth time.
func TestTopicsAreAwaitedOfEveryBroker(t *testing.T) {
	for name, c := range map[string]struct {
		before int16 // what that broker says until then
		await  func(t testing.TB, brokers []string, topics ...string)
		topic  string
	}{
		"a topic that is made":    {kerr.UnknownTopicOrPartition.Code, testkit.AwaitTopics, "made"},
		"a topic that is deleted": {0, testkit.AwaitNoTopics, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			f := testkit.NewFake(t, testkit.WithBrokers(3), testkit.WithTopics(testkit.Topic{Name: "made", Partitions: 2}))
			var asked atomic.Int32
			f.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
				f.Cluster().KeepControl()
				if f.Cluster().CurrentNode() != 2 || asked.Add(1) > 3 {
					return nil, nil, false
				}
				resp := req.ResponseKind().(*kmsg.MetadataResponse)
				for _, topic := range req.(*kmsg.MetadataRequest).Topics {
					one := kmsg.NewMetadataResponseTopic()
					one.Topic, one.ErrorCode = topic.Topic, c.before
					resp.Topics = append(resp.Topics, one)
				}
				return resp, nil, true
			})
			c.await(t, f.Brokers(), c.topic)
			if n := asked.Load(); n != 4 {
				t.Errorf("the broker that is behind was asked %d times", n)
			}
		})
	}
}
