package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// A partition whose intake does not take is paused; its sister goes on, and what is
// buffered for the slow one stays bounded.
func TestASlowIntakePausesItsOwnPartitionOnly(t *testing.T) {
	w := newWorld(t, 2)
	const n = 10_000
	for range n / 100 {
		w.produce(0, 100)
		w.produce(1, 100)
	}
	release := make(chan struct{})
	m := w.join(func(c *Config, m *member) {
		c.FetchMaxPartitionBytes, c.QueueBytes = 8<<10, 32<<10
		m.onTake = func(ctx context.Context, a *Assignment, recs []schemas.Record) {
			if a.Partition().Partition == 0 {
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			for _, r := range recs {
				a.Done(r.Offset)
			}
		}
	})
	w.awaitCommit(1, n)
	own := m.loop.own
	own.mu.Lock()
	slow := own.current[Partition{testTopic, 0}]
	own.mu.Unlock()
	testkit.Eventually(t, patience, func() string {
		slow.led.mu.Lock()
		defer slow.led.mu.Unlock()
		if !slow.behind {
			return "not paused"
		}
		return ""
	})
	slow.led.mu.Lock()
	if bound := own.limits.queueBytes + 2000*208; slow.queued > bound { // 8 KiB of compressed batches are up to 2,000 records
		t.Errorf("%d bytes are queued of %d, bound %d", slow.queued, n*208, bound)
	}
	slow.led.mu.Unlock()
	close(release)
	w.awaitCommit(0, n)
	m.leave()
	w.check()
}

// The cap on unsettled records holds fetching; settling some lets it go on.
func TestTheCapOnUnsettledRecordsHolds(t *testing.T) {
	w := newWorld(t, 1)
	for range 100 {
		w.produce(0, 20) // a fetch returns whole batches
	}
	m := w.join(func(c *Config, _ *member) {
		c.MaxUnsettled, c.FetchMaxPartitionBytes = 200, 4<<10
	})
	m.await(200)
	settled := 0
	for settled < 2000 {
		got := m.await(settled + 1)
		for _, r := range got[settled:] {
			r.a.led.mu.Lock()
			n := r.a.tracker.Unsettled()
			r.a.led.mu.Unlock()
			if n > 200+300 {
				t.Fatalf("%d unsettled, cap 200 and one fetch", n)
			}
			r.a.Done(r.rec.Offset)
		}
		settled = len(got)
	}
	w.awaitCommit(0, 2000)
	m.leave()
	w.check()
}

// Invariant 4: a shutdown drains, commits and only then leaves; what was not taken or
// was given up is the next one's, nothing else is.
func TestAShutdownDrainsCommitsThenLeaves(t *testing.T) {
	w := newWorld(t, 3)
	for p := range int32(3) {
		w.produce(p, 100)
	}
	var mu sync.Mutex
	var order []string
	w.fake.Observe(-1, func(r kmsg.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch r.Key() {
		case 8:
			order = append(order, "commit")
		case 13:
			order = append(order, "leave")
		}
	})
	m := w.join(nil)
	m.await(300)
	done := make(map[Partition]map[int64]bool)
	m.mu.Lock()
	m.onDrain = func(_ context.Context, a *Assignment) {
		mu.Lock()
		order = append(order, "drain")
		done[a.Partition()] = make(map[int64]bool)
		mu.Unlock()
		for o := range int64(100) {
			if !a.Owned() {
				t.Error("not owned while it drains")
			}
			if o%3 == 1 {
				a.GiveUp(o)
				continue
			}
			mu.Lock()
			done[a.Partition()][o] = true
			mu.Unlock()
			a.Done(o)
		}
	}
	m.mu.Unlock()
	m.leave()
	if m.err != nil {
		t.Error(m.err)
	}
	mu.Lock()
	last := order[len(order)-2:]
	if last[0] != "commit" || last[1] != "leave" {
		t.Errorf("the end was %v, want a commit and then the leave", last)
	}
	if drains := len(slices.DeleteFunc(slices.Clone(order), func(s string) bool { return s != "drain" })); drains != 3 {
		t.Errorf("%d drains of 3 assignments", drains)
	}
	mu.Unlock()
	for _, r := range m.got() {
		if r.a.Owned() {
			t.Error("owned after the shutdown")
		}
	}

	m = w.join(nil)
	for _, r := range m.await(99) {
		if done[Partition{testTopic, r.rec.Partition}][r.rec.Offset] {
			t.Errorf("%d/%d was settled and is handed over again", r.rec.Partition, r.rec.Offset)
		}
	}
	m.leave()
	w.check()
}

// A drain that does not end in time is cut short, and the process goes on to commit
// and to leave.
func TestADrainEndsWithItsBudget(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, 10)
	m := w.join(func(c *Config, m *member) {
		c.DrainBudget = 300 * time.Millisecond
		m.onDrain = func(ctx context.Context, a *Assignment) {
			a.Done(0)
			<-ctx.Done()
			a.Done(1)
		}
	})
	m.await(10)
	began := time.Now()
	m.leave()
	if took := time.Since(began); took < 300*time.Millisecond || took > testkit.Patience*patience {
		t.Errorf("the shutdown took %s", took)
	}
	w.awaitCommit(0, 2)
	w.check()
}

// Other people's transactions on our topics: aborted records do not come, and the
// watermark passes the markers.
func TestOnlyCommittedRecordsAreReadAndTheLagReachesZero(t *testing.T) {
	w := newWorld(t, 1)
	tx := w.fake.Client(kgo.TransactionalID("somebody"), kgo.DefaultProduceTopic(testTopic))
	for i, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		testkit.Produce(t, tx, kgo.StringRecord(fmt.Sprint(i)), kgo.StringRecord(fmt.Sprint(i)))
		if err := tx.EndTransaction(t.Context(), commit); err != nil {
			t.Fatal(err)
		}
	}
	m := w.join(nil)
	for _, r := range m.await(4) {
		if string(r.rec.Value) == "1" {
			t.Error("an aborted record was handed over")
		}
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(0, 9)
	m.leave()
	w.check()
}

func TestReadyAndAliveTellKafkasFaultsFromOurs(t *testing.T) {
	w := newWorld(t, 1, testkit.WithDataDir(""))
	cfg := w.config()
	cfg.Start = func(a *Assignment) Intake { return nil }
	fresh, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if fresh.Ready() == nil || !fresh.Alive() {
		t.Error("a loop that was not started is ready, or not alive")
	}
	w.fake.Stop()
	m := w.join(nil)
	if m.loop.Ready() == nil {
		t.Error("ready without a broker")
	}
	w.log.Await(t, patience, "no broker answers")
	if !m.loop.Alive() {
		t.Error("not alive for want of a broker: a restart would not help")
	}
	w.fake.Restart()
	testkit.Eventually(t, patience, func() string {
		if err := m.loop.Ready(); err != nil {
			return err.Error()
		}
		return ""
	})
	m.leave()
	if m.loop.Ready() == nil {
		t.Error("ready after the end")
	}
}

func TestConfigurationIsRefusedWithEveryMistake(t *testing.T) {
	_, err := New(Config{RevokeBudget: time.Minute, FetchMaxWait: time.Second, InitialOffset: "middle", GroupProtocol: "raft"})
	for _, part := range []string{"no group", "no topics", "no Start", "middle", "raft", "revoke budget 1m0s", "fetch max wait 1s"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}

// kgo asks once for the offset of a partition; refused, it never reads that partition
// again. The loop takes a new client then.
func TestAPartitionWhoseOffsetWasRefusedRecovers(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, 10)
	var refuse atomic.Bool
	refuse.Store(true)
	w.fake.ControlKey(9, func(r kmsg.Request) (kmsg.Response, error, bool) {
		w.fake.Cluster().KeepControl()
		req := r.(*kmsg.OffsetFetchRequest)
		if !refuse.Load() {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		for _, g := range req.Groups {
			rg := kmsg.NewOffsetFetchResponseGroup()
			rg.Group = g.Group
			for _, t := range g.Topics {
				rt := kmsg.NewOffsetFetchResponseGroupTopic()
				rt.Topic, rt.TopicID = t.Topic, t.TopicID
				for _, p := range t.Partitions {
					rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
					rp.Partition, rp.ErrorCode = p, kerr.TopicAuthorizationFailed.Code
					rt.Partitions = append(rt.Partitions, rp)
				}
				rg.Topics = append(rg.Topics, rt)
			}
			resp.Groups = append(resp.Groups, rg)
		}
		return resp, nil, true
	})
	m := w.join(nil)
	testkit.Eventually(t, patience, func() string {
		if err := m.loop.Ready(); !errors.Is(err, kerr.TopicAuthorizationFailed) {
			return fmt.Sprintf("ready says %v", err)
		}
		return ""
	})
	refuse.Store(false)
	for _, r := range m.await(10) {
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(0, 10)
	m.leave()
	w.check()
}

// A tier that is made while the releaser runs is read.
func TestANewTopicOfARegularExpressionIsFound(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, 3)
	m := w.join(func(c *Config, _ *member) {
		c.Topics, c.TopicsRegex = []string{`^webhooks\.(deliveries|retry\..*)$`}, true
	})
	m.await(3)
	w.fake.CreateTopics(testkit.Topic{Name: "webhooks.retry.5m", Partitions: 1}, testkit.Topic{Name: "webhooks.hold", Partitions: 1})
	m.loop.watch.mu.Lock()
	cl := m.loop.watch.cl
	m.loop.watch.mu.Unlock()
	cl.ForceMetadataRefresh()
	testkit.Produce(t, w.producer, &kgo.Record{Topic: "webhooks.retry.5m"}, &kgo.Record{Topic: "webhooks.hold"})
	for _, r := range m.await(4)[3:] {
		if r.rec.Topic != "webhooks.retry.5m" {
			t.Errorf("a record of %s", r.rec.Topic)
		}
	}
	if err := m.loop.Ready(); err != nil {
		t.Error(err)
	}
	m.leave()
	w.check()
}

// A shutdown while nothing answers ends by itself, within its waits.
func TestAShutdownWithoutABrokerEnds(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, 10)
	m := w.join(nil)
	for _, r := range m.await(10) {
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(0, 10)
	w.produce(0, 1)
	last := m.await(11)[10]
	w.fake.Stop()
	last.a.Done(10)
	began := time.Now()
	m.leave()
	if took := time.Since(began); took > shutdownCommit+leaveWait+tellWait+testkit.Patience*patience {
		t.Errorf("took %s", took)
	}
	// Where the group's session ended first, it took the partition, and there was no last commit.
	if lost := w.log.Find("partition let go", "lost=true"); m.err == nil && len(lost) == 0 {
		t.Error("the last commit was not made, and Run says nothing")
	}
	if n := len(m.loop.own.current); n != 0 {
		t.Errorf("%d assignments are left", n)
	}
}

// Another member has joined and does not come again, so a rebalance does not end. Who is
// asked to stop in it is not waited for.
func TestAMemberThatStopsInTheMiddleOfARebalanceHasLeftTheGroup(t *testing.T) {
	w := newWorld(t, 1)
	m := w.join(func(c *Config, _ *member) { c.SessionTimeout = time.Minute })
	testkit.Eventually(t, patience, func() string {
		if err := m.loop.Ready(); err != nil {
			return err.Error()
		}
		return ""
	})
	m.loop.watch.mu.Lock()
	cl := m.loop.watch.cl
	m.loop.watch.mu.Unlock()
	id, _ := cl.GroupMetadata()
	joins := make(chan struct{}, 100)
	w.fake.Observe(keyJoinGroup, func(req kmsg.Request) {
		if req.(*kmsg.JoinGroupRequest).MemberID == id {
			joins <- struct{}{}
		}
	})
	w.joinAndSleep(t.Context())
	<-joins // for the first, whose rebalance ends
	testkit.Eventually(t, patience, func() string {
		if _, generation := cl.GroupMetadata(); generation < 2 {
			return fmt.Sprintf("generation %d", generation)
		}
		return ""
	})
	ctx, wake := context.WithCancel(t.Context())
	var second sync.WaitGroup
	defer second.Wait()
	defer wake()
	second.Go(func() { w.joinAndSleep(ctx) })
	<-joins // for the second, whose rebalance does not: the first does not join again
	m.leave()
	groups, err := kadm.NewClient(w.producer).DescribeGroups(t.Context(), testGroup)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range groups[testGroup].Members {
		if other.MemberID == id {
			t.Errorf("%s has stopped and is a member still", id)
		}
	}
}

// joinAndSleep joins the group as a member that does nothing else.
func (w *world) joinAndSleep(ctx context.Context) {
	cl := w.fake.Client()
	knows := kmsg.NewConsumerMemberMetadata()
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.ProtocolType = testGroup, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 60_000, 60_000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "cooperative-sticky", Metadata: knows.AppendTo(nil)}}
	for range 2 { // a new member is told its id, and comes again with it
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return
		}
		req.MemberID = resp.MemberID
	}
}
