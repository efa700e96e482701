//go:build kafka

package consume

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/internal/testkit/realkafka"
)

func newRealWorld(t *testing.T, partitions int32) (*world, *realkafka.Cluster) {
	c := realkafka.Start(t, realkafka.Config{})
	w := &world{t: t, committed: make(map[Partition]int64), log: testkit.NewLogCapture(t), brokers: c.Brokers()}
	w.producer = testkit.NewClient(t, c.Brokers(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if _, err := kadm.NewClient(w.producer).CreateTopic(t.Context(), partitions, 1, nil, testTopic); err != nil {
		t.Fatal(err)
	}
	testkit.AwaitTopics(t, w.brokers, testTopic)
	return w, c
}

// readCommits reads every commit of the group from the coordinator's own log, and
// holds invariant 3 over them.
func (w *world) readCommits() {
	w.t.Helper()
	adm := kadm.NewClient(w.producer)
	ends, err := adm.ListEndOffsets(w.t.Context(), "__consumer_offsets")
	if err != nil {
		w.t.Fatal(err)
	}
	start := make(map[string]map[int32]kgo.Offset)
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) {
		if start[o.Topic] == nil {
			start[o.Topic] = make(map[int32]kgo.Offset)
		}
		start[o.Topic][o.Partition] = kgo.NewOffset().AtStart()
		left += o.Offset
	})
	cl := testkit.NewClient(w.t, w.brokers, kgo.ConsumePartitions(start), kgo.KeepControlRecords())
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	commits := 0
	last := make(map[Partition]int64)
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			w.t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			var k kmsg.OffsetCommitKey
			var v kmsg.OffsetCommitValue
			if k.ReadFrom(r.Key) != nil || k.Version > 1 || k.Group != testGroup || v.ReadFrom(r.Value) != nil {
				return
			}
			commits++
			p := Partition{k.Topic, k.Partition}
			if v.Offset < last[p] {
				w.t.Errorf("a commit moved back: %v %d → %d", p, last[p], v.Offset)
			}
			last[p] = v.Offset
		})
	}
	w.t.Logf("%d commits of %d partitions, none moved back unless it says so above", commits, len(last))
	if commits == 0 {
		w.t.Error("no commits seen")
	}
}

func TestRealCommitsNeverMoveBackWhileMembersJoinAndLeave(t *testing.T) {
	for _, protocol := range []Protocol{ProtocolClassic, ProtocolConsumer} {
		t.Run(string(protocol), func(t *testing.T) {
			const partitions, each = 12, 4000
			w, _ := newRealWorld(t, partitions)
			for p := range int32(partitions) {
				w.produce(p, each)
			}
			s := newSettleAsync(200, 20*time.Millisecond)
			var all sync.WaitGroup
			change := func(c *Config, _ *member) {
				c.Start = s.intake(&all)
				c.GroupProtocol = protocol
				c.QueueBytes, c.FetchMaxPartitionBytes = 64<<10, 16<<10
			}
			first, second := w.join(change), w.join(change)
			guests := 0
			for n := 0; n < partitions*each*9/10; n, _ = s.count() {
				guest := w.join(change)
				guests++
				<-time.After(2 * time.Second)
				guest.leave()
			}
			for p := range int32(partitions) {
				w.awaitCommit(p, each)
			}
			first.leave()
			second.leave()
			all.Wait()
			settled, repeats := s.count()
			t.Logf("%d guests, %d settled, %d repeats", guests, settled, repeats)
			if settled != partitions*each {
				t.Errorf("%d settled of %d", settled, partitions*each)
			}
			w.readCommits()
		})
	}
}

// The broker freezes for longer than the session timeout, then is killed, and started
// again: one process, so its facts must spare every repeat.
func TestRealBrokerThatFreezesAndCrashesCostsNoRepeat(t *testing.T) {
	t.Parallel()
	for _, protocol := range []Protocol{ProtocolClassic, ProtocolConsumer} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel() // most of it is waiting for brokers
			const partitions, each = 4, 5000
			w, c := newRealWorld(t, partitions)
			s := newSettleAsync(100, 40*time.Millisecond)
			var all sync.WaitGroup
			m := w.join(func(c *Config, _ *member) {
				c.Start, c.GroupProtocol, c.SessionTimeout = s.intake(&all), protocol, 3*time.Second
			})
			for p := range int32(partitions) {
				w.produce(p, each)
			}
			until := func(n int) {
				testkit.Eventually(t, time.Minute, func() string {
					if got, _ := s.count(); got < n {
						return fmt.Sprintf("%d settled of %d: %v", got, n, m.loop.Ready())
					}
					return ""
				})
			}
			until(3000)
			if err := c.Freeze(0); err != nil {
				t.Fatal(err)
			}
			<-time.After(5 * time.Second)
			if err := c.Thaw(0); err != nil {
				t.Fatal(err)
			}
			until(9000)
			if err := c.Kill(0); err != nil {
				t.Fatal(err)
			}
			<-time.After(2 * time.Second)
			if err := c.Restart(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			until(partitions * each)
			for p := range int32(partitions) {
				w.awaitCommit(p, each)
			}
			m.leave()
			all.Wait()
			settled, repeats := s.count()
			t.Logf("%d settled, %d repeats, lost %d times", settled, repeats, len(w.log.Find("partition let go", "lost=true")))
			if settled != partitions*each || repeats != 0 {
				t.Errorf("%d settled of %d, %d repeats", settled, partitions*each, repeats)
			}
			w.readCommits()
		})
	}
}

func TestRealTopicThatIsMadeAgain(t *testing.T) {
	w, _ := newRealWorld(t, 1)
	w.produce(0, 50)
	m := w.join(nil)
	for _, r := range m.await(50) {
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(0, 50)
	adm := kadm.NewClient(w.producer)
	if _, err := adm.DeleteTopic(t.Context(), testTopic); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func() string {
		if m.loop.Ready() == nil {
			return "ready without its topic"
		}
		return ""
	})
	testkit.AwaitNoTopics(t, w.brokers, testTopic)
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, testTopic); err != nil {
		t.Fatal(err)
	}
	testkit.AwaitTopics(t, w.brokers, testTopic)
	w.producer = testkit.NewClient(t, w.brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	w.produce(0, 60)
	for i, r := range m.await(110)[50:] {
		if r.rec.Offset != int64(i) {
			t.Fatalf("record %d of the new topic is offset %d", i, r.rec.Offset)
		}
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(0, 60)
	testkit.Eventually(t, time.Minute, func() string {
		if err := m.loop.Ready(); err != nil {
			return err.Error()
		}
		return ""
	})
}
