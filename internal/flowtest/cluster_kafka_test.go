//go:build kafka

package flowtest

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/internal/testkit/realkafka"
)

// session is the group session timeout of mortal processes: the shortest that brokers
// take without being told.
const session = 6 * time.Second

func withShared(m *testing.M) interface{ Run() int } { return realkafka.WithShared(m) }

// cluster is a real Kafka.
type cluster struct {
	kafka       *realkafka.Cluster
	keepForever bool
}

// newCluster returns the broker that the tests of this process share; they keep
// apart by prefix.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{kafka: realkafka.Shared(t)}
}

// newStoppable starts a broker that the test may stop and restart.
func newStoppable(t *testing.T) *cluster {
	t.Helper()
	return &cluster{kafka: realkafka.Start(t, realkafka.Config{})}
}

func (c *cluster) brokers() []string { return c.kafka.Brokers() }

func (c *cluster) stop(t *testing.T) { must(t, c.kafka.Kill(0)) }
func (c *cluster) restart(t *testing.T) {
	must(t, c.kafka.Restart(context.WithoutCancel(t.Context()), 0))
}

// refuse lets the broker acknowledge no write until allow is called: a real one
// cannot be told to refuse a topic, so it stands still.
func (c *cluster) refuse(t *testing.T, _ ...string) (allow func()) {
	t.Helper()
	must(t, c.kafka.Freeze(0))
	return func() { must(t, c.kafka.Thaw(0)) }
}

// commitLog is every commit of a group, as the coordinator's own log has it.
type commitLog struct {
	c     *cluster
	group string
}

func (c *cluster) watchCommits(_ *testing.T, group string) *commitLog { return &commitLog{c, group} }

func (l *commitLog) all(t *testing.T) (commits []commit) {
	t.Helper()
	const topic = "__consumer_offsets"
	ends, err := kadm.NewClient(testkit.NewClient(t, l.c.brokers())).ListEndOffsets(t.Context(), topic)
	must(t, err)
	starts, left := make(map[int32]kgo.Offset), int64(0)
	ends.Each(func(o kadm.ListedOffset) {
		starts[o.Partition] = kgo.NewOffset().AtStart()
		left += o.Offset
	})
	cl := testkit.NewClient(t, l.c.brokers(), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		must(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			var k kmsg.OffsetCommitKey
			var v kmsg.OffsetCommitValue
			if k.ReadFrom(r.Key) == nil && k.Version <= 1 && k.Group == l.group && v.ReadFrom(r.Value) == nil {
				commits = append(commits, commit{k.Topic, k.Partition, v.Offset})
			}
		})
	}
	return commits
}
