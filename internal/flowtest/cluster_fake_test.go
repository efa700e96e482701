//go:build !kafka

package flowtest

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/testkit"
)

// session is the group session timeout of mortal processes: what a test waits for
// after a kill.
const session = 3 * time.Second

func withShared(m *testing.M) interface{ Run() int } { return m }

// cluster is the embedded broker of one test.
type cluster struct {
	fake        *testkit.Fake
	keepForever bool
}

// newCluster starts a broker for one test.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{fake: testkit.NewFake(t), keepForever: true}
}

// newStoppable starts a broker that the test may stop and restart.
func newStoppable(t *testing.T) *cluster {
	t.Helper()
	return &cluster{fake: testkit.NewFake(t, testkit.WithDataDir("")), keepForever: true}
}

func (c *cluster) brokers() []string { return c.fake.Brokers() }

func (c *cluster) stop(*testing.T)    { c.fake.Stop() }
func (c *cluster) restart(*testing.T) { c.fake.Restart() }

// refuse lets the broker acknowledge no write to the topics until allow is called.
func (c *cluster) refuse(t *testing.T, topics ...string) (allow func()) {
	t.Helper()
	details, err := kadm.NewClient(c.fake.Client()).ListTopics(t.Context(), topics...)
	must(t, err)
	names := make(map[[16]byte]string)
	for _, d := range details {
		names[d.ID] = d.Topic
	}
	var allowed atomic.Bool
	k := c.fake.Cluster()
	c.fake.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req := r.(*kmsg.ProduceRequest)
		hit := slices.ContainsFunc(req.Topics, func(at kmsg.ProduceRequestTopic) bool {
			return slices.Contains(topics, at.Topic) || names[at.TopicID] != ""
		})
		if allowed.Load() || !hit {
			return nil, nil, false
		}
		k.KeepControl()
		return refusal(req), nil, true
	})
	return func() { allowed.Store(true) }
}

func refusal(req *kmsg.ProduceRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, at := range req.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = at.Topic, at.TopicID
		for _, p := range at.Partitions {
			part := kmsg.NewProduceResponseTopicPartition()
			part.Partition, part.ErrorCode = p.Partition, kerr.NotEnoughReplicas.Code
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// commitLog is every commit of a group, in the order in which the coordinator got them.
type commitLog struct {
	mu      sync.Mutex
	commits []commit
}

// watchCommits must be called before the group's members start.
func (c *cluster) watchCommits(_ *testing.T, group string) *commitLog {
	l := &commitLog{}
	c.fake.Observe(int16(kmsg.OffsetCommit), func(r kmsg.Request) {
		req := r.(*kmsg.OffsetCommitRequest)
		if req.Group != group {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, at := range req.Topics {
			for _, p := range at.Partitions {
				l.commits = append(l.commits, commit{at.Topic + string(at.TopicID[:]), p.Partition, p.Offset})
			}
		}
	})
	return l
}

func (l *commitLog) all(*testing.T) []commit {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.commits)
}
