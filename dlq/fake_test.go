//go:build !kafka

package dlq

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestMain(m *testing.M) { testkit.VerifyMain(m) }

// fake is the embedded broker that all tests without the tag kafka have.
func (w *world) fake() *testkit.Fake { return w.broker.(*testkit.Fake) }

func (w *world) start() {
	w.Helper()
	w.names = schemas.Names{Prefix: schemas.DefaultPrefix}
	var topics []testkit.Topic
	for _, t := range topicsOf(w.names) {
		topics = append(topics, testkit.Topic{Name: t.name, Partitions: t.partitions, Configs: map[string]string{"cleanup.policy": t.policy}})
	}
	w.broker = testkit.NewFake(w.TB, testkit.WithTopics(topics...))
	w.cfg = kafka.Config{Brokers: w.fake().Brokers(), Names: w.names, Logger: slog.New(slog.DiscardHandler)}
}

func TestAMissingRightIsNamed(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(2, "ep_1")
	w.fake().Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: w.names.DLQ(), Err: kerr.TopicAuthorizationFailed, Count: -1})
	_, _, err := w.store.Count(w.ctx(), Filter{})
	var access *kafka.RightError
	if !errors.As(err, &access) || !strings.Contains(err.Error(), "--operation Read --topic webhooks.dlq") {
		t.Errorf("%v", err)
	}
}

func TestASummaryThatIsEndedEarlyIsTrueAndSaysSo(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2", "ep_3")
	w.many(3000, "ep_1", "ep_2", "ep_3")
	ctx, cancel := context.WithCancel(w.ctx())
	n := 0
	w.fake().Observe(int16(kmsg.Fetch), func(kmsg.Request) {
		if n++; n == 2 { // no partition is read by then
			cancel()
		}
	})
	sum, err := w.store.Summary(ctx, Filter{})
	if !errors.Is(err, ErrPartial) || sum == nil {
		t.Fatalf("%+v %v", sum, err)
	}
	if sum.Coverage.Complete || sum.Count > 3000 || sum.Count != sum.Coverage.Letters {
		t.Errorf("%d %+v", sum.Count, sum.Coverage)
	}
}

// An automatic rate that cannot look takes deliveries for late, and crawls.
func TestAnAutomaticRateThatMayNotLookIsRefusedBeforeTheRunIsClaimed(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(2, "ep_1")
	w.fake().Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.GroupAuthorizationFailed, Count: -1})
	runs := w.runs()
	_, err := w.store.Execute(w.ctx(), w.plan(Job{Auto: true, Rate: AutoStart}), runs, Options{})
	if err == nil || !strings.Contains(err.Error(), "--operation Describe --group webhooks.dispatcher") {
		t.Errorf("%v", err)
	}
	if list, err := runs.List(w.ctx()); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
}

// What was committed when it was asked for left its traces before: whatever is read after
// that has them. The other way round, a delivery between two questions would be missing.
func TestMissingAsksForCommitsBeforeItReads(t *testing.T) {
	w := newWorld(t)
	w.publish("ep_1", "e1")
	w.attempted("other", "ep_1", schemas.OutcomeDelivered)
	w.flush()
	var asked, early atomic.Bool
	w.fake().Observe(int16(kmsg.OffsetFetch), func(kmsg.Request) { asked.Store(true) })
	w.fake().Observe(int16(kmsg.Fetch), func(kmsg.Request) { early.Store(early.Load() || !asked.Load()) })
	if _, _, err := w.store.PlanResend(w.ctx(), Job{}, Past{Since: time.Now().Add(-time.Minute), Missing: true}); err != nil {
		t.Fatal(err)
	}
	if !asked.Load() || early.Load() {
		t.Errorf("commits were asked for: %t; something was read before: %t", asked.Load(), early.Load())
	}
}

// Partitions are read a few at a time: of those whose turn has not come nothing was seen.
func TestAReadingThatIsEndedEarlyVouchesForNoPartitionThatItHasNotBegun(t *testing.T) {
	noon := time.Now()
	whole := &scan{back: noon.Add(-time.Hour), cover: Coverage{Complete: true}}
	half, less, none := &scan{back: noon.Add(-2 * time.Minute)}, &scan{back: noon.Add(-time.Minute)}, &scan{}
	for want, scans := range map[time.Time][]*scan{
		{}:        {none, half, whole},
		less.back: {half, less, whole},
	} {
		if c := total(scans); c.Complete || !c.BackTo.Equal(want) || c.Partitions != 1 || c.Of != 3 {
			t.Errorf("%+v, want it to go back to %s", c, want)
		}
	}
}

func TestWhatAListHasReadAndNotShownIsNotSeen(t *testing.T) {
	noon := time.Now()
	m := &merge{heads: []*head{{done: true, queue: []queued{{at: noon}}}, {done: true}}}
	c := Coverage{Complete: true, Partitions: 2, Of: 2}
	if m.left(&c); c != (Coverage{Partitions: 1, Of: 2, BackTo: noon}) {
		t.Errorf("%+v", c)
	}
}

func TestASummaryThatDoesNotKnowWhatExpiresSaysSo(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(2, "ep_1")
	w.fake().ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, r := range req.(*kmsg.DescribeConfigsRequest).Resources {
			refused := kmsg.NewDescribeConfigsResponseResource()
			refused.ResourceType, refused.ResourceName, refused.ErrorCode = r.ResourceType, r.ResourceName, kerr.TopicAuthorizationFailed.Code
			resp.Resources = append(resp.Resources, refused)
		}
		return resp, nil, true
	})
	sum, err := w.store.Summary(w.ctx(), Filter{})
	if err != nil || sum.Count != 2 || sum.NoExpiry == nil {
		t.Errorf("%+v %v", sum, err)
	}
}

// The topic was deleted and made anew: at the offsets of what was selected stand
// letters that nobody has agreed to.
func TestARunTouchesNothingOfATopicThatWasMadeAnew(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(100, "ep_1")
	waiting, begun := w.plan(Job{}), w.stopped(w.plan(Job{Rate: 20}), 5)
	cluster := w.fake().Cluster()
	if err := cluster.DeleteTopic(w.names.DLQ()); err != nil {
		t.Fatal(err)
	}
	if err := cluster.CreateTopic(w.names.DLQ(), worldPartitions, nil); err != nil {
		t.Fatal(err)
	}
	w.many(50, "ep_1")
	before := len(w.lives())
	rep, err := w.store.Execute(w.ctx(), waiting, w.runs(), Options{})
	if err != nil || rep.Run.Counts.Skipped[SkipGone] != 100 || len(w.lives()) != before || len(w.letters(Filter{})) != 50 {
		t.Errorf("%+v %v", rep, err)
	}
	job, err := ResumeJob(begun)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Plan(w.ctx(), job); err == nil || !strings.Contains(err.Error(), "was deleted and made anew") {
		t.Error(err)
	}
}

func TestARunOutlastsABrokerThatIsAway(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(100, "ep_1")
	plan := w.plan(Job{})
	impatient, err := kafka.NewReader(w.cfg, kafka.WithRetryFor(0))
	if err != nil {
		t.Fatal(err)
	}
	defer impatient.Close()
	w.store.reader.Close()
	w.store.reader = impatient
	w.fake().Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: w.names.DLQ(), Err: kerr.NotLeaderForPartition, Count: 5})
	rep, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{})
	if err != nil || rep.Settled != 100 || len(w.lives()) != 100 {
		t.Errorf("%+v %v", rep, err)
	}
}
