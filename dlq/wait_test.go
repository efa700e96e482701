//go:build !kafka

package dlq

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// replayed is a run of letters that are all delivered.
func (w *world) replayed(job Job) Report {
	w.Helper()
	stop := w.remembering(allDelivered)
	defer stop()
	rep, err := w.store.Execute(w.ctx(), w.plan(job), w.runs(), Options{Wait: true})
	if err != nil {
		w.Fatalf("%+v %v", rep.Outcomes, err)
	}
	return rep
}

// impatient makes the store's reader one that gives up at the first error.
func (w *world) impatient() {
	w.Helper()
	r, err := kafka.NewReader(w.cfg, kafka.WithRetryFor(0))
	if err != nil {
		w.Fatal(err)
	}
	w.store.reader.Close()
	w.store.reader = r
}

func (w *world) failing(topic string, times int) *kfake.FaultHandle {
	return w.fake().Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: topic, Err: kerr.NotLeaderForPartition, Count: times})
}

func TestTheShortestWaitReadsWhatThereIs(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(8, "ep_1")
	rep := w.replayed(Job{})
	if out, err := w.store.Follow(w.ctx(), &rep.Run, Options{WaitFor: time.Nanosecond}); err != nil || out.All.Delivered != 8 {
		t.Errorf("%+v %v", out, err)
	}
	w.impatient()
	w.failing(w.names.Attempts(), 2)
	if out, err := w.store.Follow(w.ctx(), &rep.Run, Options{WaitFor: testkit.Patience * time.Minute}); err != nil || out.All.Delivered != 8 {
		t.Errorf("a broker that was away: %+v %v", out, err)
	}
	w.failing(w.names.Attempts(), -1)
	if out, err := w.store.Follow(w.ctx(), &rep.Run, Options{WaitFor: time.Nanosecond}); err == nil || out != nil {
		t.Errorf("it answers without having read: %+v %v", out, err)
	}
}

func TestAWaitThatMayNotReadNamesTheRight(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(8, "ep_1")
	rep := w.replayed(Job{})
	w.fake().Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: w.names.Attempts(), Err: kerr.TopicAuthorizationFailed, Count: -1})
	out, err := w.store.Follow(w.within(testkit.Patience*20*time.Second), &rep.Run, Options{})
	if out != nil || err == nil || !strings.Contains(err.Error(), "--operation Read --topic webhooks.attempts") {
		t.Errorf("%+v %v", out, err)
	}
}

func TestWhatTheReadingTakesIsAPartOfTheWait(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(8, "ep_1")
	rep := w.execute(Job{}, Options{})
	const wait = 2 * time.Second
	fault := w.failing(w.names.Deliveries(), -1)
	var first sync.Once
	w.fake().Observe(int16(kmsg.Fetch), func(kmsg.Request) { first.Do(func() { time.AfterFunc(wait, fault.Remove) }) })
	out, err := w.store.Follow(w.ctx(), &rep.Run, Options{WaitFor: wait, Following: func(Outcomes) { t.Error("it goes on waiting") }})
	if out == nil || out.All.Open != 8 || err == nil || err.Error() != "the waiting ended before all was known" {
		t.Errorf("%+v %v", out, err)
	}
}

func TestARunIsFollowedAsLongAsTheLogMayHaveAllOfIt(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(8, "ep_1")
	w.attempted("x-00000000-0-0.ep_1", "ep_1", schemas.OutcomeDelivered) // last week; retention has taken it
	w.flush()
	w.lose(w.names.Attempts(), partitionOf("ep_1"), 1)
	rep := w.replayed(Job{})
	w.keepFor(w.names.Attempts(), time.Hour)
	if out, err := w.store.Follow(w.ctx(), &rep.Run, Options{}); err != nil || out.All.Delivered != 8 {
		t.Errorf("%+v %v", out, err)
	}
	rep.Run.Started = rep.Run.Started.Add(-2 * time.Hour)
	w.lose(w.names.Attempts(), partitionOf("ep_1"), 9)
	out, err := w.store.Follow(w.ctx(), &rep.Run, Options{WaitFor: time.Nanosecond})
	if err == nil || out != nil || !strings.Contains(err.Error(), "what came of it cannot be told") {
		t.Errorf("all has gone: %+v %v", out, err)
	}
}

// The owner attempts the first one, and drops the second as its duplicate.
func TestLettersOfOneEventToOneOtherEndpointAreOneDelivery(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2", "ep_3")
	d := w.delivery("ep_1")
	w.die(d, schemas.ReasonExhausted, time.Now())
	d.EndpointID = "ep_2"
	w.die(d, schemas.ReasonExhausted, time.Now())
	w.many(1, "ep_1")
	rep := w.replayed(Job{ToEndpoint: "ep_3"})
	out, err := w.store.Follow(w.ctx(), &rep.Run, Options{})
	if err != nil {
		t.Error(err)
	}
	for who, o := range map[string]*Outcomes{"replay": rep.Outcomes, "runs show": out} {
		if want := (OutcomeCounts{Delivered: 2, Duplicate: 1}); o == nil || o.All != want || o.Merged != 1 || rep.Run.Counts.Written != 3 {
			t.Errorf("%s: %+v of %d", who, o, rep.Run.Counts.Written)
		}
	}
}

func TestAWaitReadsThePartitionsThatAreAddedMeanwhile(t *testing.T) {
	w := newWorld(t)
	home := func(id string) int32 { return kafka.Partition([]byte(id), raisedTo) }
	added, was := moved(0), moved(0) // one is in a partition that is new, one in another of the old
	for i := 1; home(added) < worldPartitions || home(was) >= worldPartitions; i++ {
		if id := moved(i); home(id) < worldPartitions {
			was = id
		} else {
			added = id
		}
	}
	w.endpoint(added, was)
	w.many(8, added, was)
	store, once := w.store, sync.Once{}
	raise := func(Outcomes) {
		once.Do(func() {
			written := w.deliveries()
			w.raise()
			for _, d := range written {
				a := schemas.Attempt{DeliveryID: d.ID(), EndpointID: d.EndpointID, Outcome: schemas.OutcomeDelivered, Number: 1, Generation: d.Generation, Run: d.Run}
				w.writer.Write(kafka.Message{Topic: w.names.Attempts(), Partition: home(d.EndpointID), Key: []byte(d.EndpointID), Value: schemas.AppendAttempt(nil, &a)}, nil)
			}
		})
	}
	plan, runs := w.plan(Job{}), w.runs()
	rep, err := store.Execute(w.ctx(), plan, runs, Options{Wait: true, WaitFor: testkit.Patience * 30 * time.Second, Following: raise})
	if err != nil || rep.Outcomes.All.Delivered != 8 {
		t.Errorf("%+v %v", rep.Outcomes, err)
	}
}
