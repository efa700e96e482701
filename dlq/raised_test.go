package dlq

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func (w *world) admin() *kadm.Client {
	w.Helper()
	adm, err := w.cfg.NewAdmin()
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(adm.Close)
	return adm
}

const raisedTo = 7

// raise gives the topics that are keyed by endpoint more partitions, as
// docs/operations.md tells to. The store and the writer are those of a process that was
// started after it.
func (w *world) raise() {
	w.Helper()
	w.flush()
	for _, topic := range []string{w.names.DLQ(), w.names.Deliveries(), w.names.Attempts(), w.names.Health()} {
		if resp, err := w.admin().CreatePartitions(w.ctx(), raisedTo-worldPartitions, topic); err != nil || resp.Error() != nil {
			w.Fatal(err, resp.Error())
		}
		testkit.Eventually(w, 30*time.Second, func() string { // the broker hears of it from the controller
			if ends, err := w.open().reader.Ends(w.ctx(), topic); err != nil || len(ends) != raisedTo {
				return fmt.Sprintf("%s has %d partitions, %v", topic, len(ends), err)
			}
			return ""
		})
	}
	w.store = w.open()
	writer, err := kafka.NewWriter(w.cfg, uncompressed)
	if err != nil {
		w.Fatal(err)
	}
	old := w.writer
	w.Cleanup(func() { _ = old.Close(w.within(10 * time.Second)) })
	w.writer = writer
}

// moved is an endpoint that has another partition after the raise.
func moved(n int) string {
	for i := 0; ; i++ {
		id := fmt.Sprintf("mv_%d", i)
		if kafka.Partition([]byte(id), raisedTo) == partitionOf(id) {
			continue
		}
		if n--; n < 0 {
			return id
		}
	}
}

func TestLettersFromBeforeThePartitionsWereRaisedAreTheirEndpointsStill(t *testing.T) {
	w := newWorld(t)
	endpoints := []string{"ep_1", "ep_2", "ep_3", "ep_4", "ep_5", "ep_6"}
	w.endpoint(endpoints...)
	w.many(60, endpoints...)
	w.raise()
	for _, id := range endpoints {
		if n, _, err := w.store.Count(w.ctx(), Filter{Endpoints: []string{id}}); n != 10 || err != nil {
			t.Errorf("%s: %d letters, %v", id, n, err)
		}
		sum, err := w.store.Summary(w.ctx(), Filter{Endpoints: []string{id}})
		if ever := kafka.PartitionsEver([]byte(id), raisedTo); err != nil || sum.Coverage.Of != len(ever) || !sum.Coverage.Complete {
			t.Errorf("%s was never in another partition than %v: %+v %v", id, ever, sum.Coverage, err)
		}
	}
	for _, l := range w.written {
		if n, _, err := w.store.Count(w.ctx(), Filter{IDs: []string{l.ID()}}); n != 1 || err != nil {
			t.Errorf("%s: %d letters, %v", l.ID(), n, err)
		}
	}
	again := w.written[0].Letter // it is replayed, and dies where its endpoint is now
	again.Generation++
	rec := again.Record()
	w.writer.Write(kafka.Message{Topic: w.names.DLQ(), Partition: kafka.Partition([]byte(again.EndpointID), raisedTo), Key: rec.Key, Value: rec.Value, Headers: rec.Headers}, nil)
	w.flush()
	if deaths, err := w.store.Show(w.ctx(), again.ID()); err != nil || len(deaths) != 2 || deaths[0].Partition == deaths[1].Partition {
		t.Errorf("%+v %v", deaths, err)
	}
}

// Of three counts of partitions the first and the last give an endpoint the same one.
func TestShowFindsEveryDeathWhereAnEndpointCameBackToAPartition(t *testing.T) {
	w := newWorld(t)
	w.raise()
	id := ""
	for i := 0; id == ""; i++ {
		key := fmt.Appendf(nil, "ep_%d", i)
		if home := kafka.Partition(key, raisedTo); home == kafka.Partition(key, 4) && home != kafka.Partition(key, 6) {
			id = string(key)
		}
	}
	d := w.delivery(id)
	for generation, count := range []int32{4, 6, raisedTo} {
		d.Generation = generation
		l := schemas.NewLetter(d, schemas.ReasonExhausted, time.Now().Truncate(time.Millisecond))
		rec := l.Record()
		w.writer.Write(kafka.Message{Topic: w.names.DLQ(), Partition: kafka.Partition([]byte(id), count), Key: rec.Key, Value: rec.Value, Headers: rec.Headers}, nil)
	}
	w.flush()
	if deaths, err := w.store.Show(w.ctx(), d.ID()); err != nil || len(deaths) != 3 {
		t.Errorf("%+v %v", deaths, err)
	}
}

// publishIn writes an event into some partition, and returns its delivery as it is read there.
func (w *world) publishIn(partition int32, endpoint, event string) schemas.Delivery {
	w.Helper()
	d := schemas.Delivery{EndpointID: endpoint, Event: schemas.Event{ID: event, Source: "/test", Type: "a.b", SpecVersion: "1.0"}, Payload: []byte("x")}
	return w.putIn(partition, &d)
}

func (w *world) putIn(partition int32, d *schemas.Delivery) schemas.Delivery {
	w.Helper()
	got := make(chan kafka.Written, 1)
	w.writer.Write(kafka.Message{Topic: w.names.Deliveries(), Partition: partition, Key: []byte(d.EndpointID), Value: d.Payload, Headers: d.Headers()},
		func(res kafka.Written) { got <- res })
	res := <-got
	if res.Err != nil {
		w.Fatal(res.Err)
	}
	for _, rec := range w.read(w.names.Deliveries()) {
		if rec.Partition == partition && rec.Offset == res.Offset {
			p, err := schemas.ParseDelivery(rec)
			if err != nil {
				w.Fatal(err)
			}
			return p
		}
	}
	w.Fatal("it is not there")
	return schemas.Delivery{}
}

// forwarded is the copy of a delivery that its dispatcher puts into the right partition.
func (w *world) forwarded(d schemas.Delivery, partition int32) {
	w.Helper()
	d.Forwards++
	w.putIn(partition, &d)
}

func (w *world) attemptedIn(partition int32, d *schemas.Delivery, outcome schemas.Outcome) {
	if outcome == schemas.OutcomeDead {
		w.die(*d, schemas.ReasonExhausted, time.Now())
	}
	a := schemas.Attempt{DeliveryID: d.ID(), EndpointID: d.EndpointID, Outcome: outcome, Number: 1}
	w.writer.Write(kafka.Message{Topic: w.names.Attempts(), Partition: partition, Key: []byte(d.EndpointID), Value: schemas.AppendAttempt(nil, &a)}, nil)
}

// lose takes the first records of a partition, as retention does.
func (w *world) lose(topic string, partition int32, below int64) {
	w.Helper()
	var gone kadm.Offsets
	gone.Add(kadm.Offset{Topic: topic, Partition: partition, At: below})
	if deleted, err := w.admin().DeleteRecords(w.ctx(), gone); err != nil || deleted.Error() != nil {
		w.Fatal(err, deleted.Error())
	}
}

// A source keeps its records for longer than deliveries and attempts are kept.
func TestAnEventOfASourceIsNotMissingForWhatAFormerPartitionHasLost(t *testing.T) {
	w := newWorld(t)
	source := w.names.Prefix + "orders"
	w.topic(source, 1)
	id := moved(0)
	src := &Sources{Topics: []string{source}, Read: schemas.ParseSource, Match: func(_, _ string) []string { return []string{id} }}
	w.writer.Write(kafka.Message{Topic: source, Value: []byte("x"), Headers: []schemas.Header{
		{Key: "ce_id", Value: []byte("e1")}, {Key: "ce_source", Value: []byte("/shop")}, {Key: "ce_type", Value: []byte("paid")}}}, nil)
	w.flush()
	since := time.Now().Add(-time.Minute)
	d, err := schemas.ParseSource(w.read(source)[0])
	if err != nil {
		t.Fatal(err)
	}
	d.EndpointID = id
	put := w.putIn(partitionOf(id), &d)
	w.attemptedIn(partitionOf(id), &put, schemas.OutcomeDelivered)
	w.flush()
	w.lose(w.names.Attempts(), partitionOf(id), 1)
	w.lose(w.names.Deliveries(), partitionOf(id), 1)
	check := func(when string, want Gap) {
		t.Helper()
		w.dispatched()
		w.commit("router", source)
		_, gaps, err := w.store.PlanResend(w.ctx(), Job{}, Past{Since: since, Missing: true, Sources: src})
		if err != nil || *gaps[id] != want {
			t.Errorf("%s: %+v %v", when, gaps[id], err)
		}
	}
	w.keepFor(w.names.Attempts(), time.Millisecond)
	check("before the raise", Gap{Deliveries: 1, Unknown: 1})
	w.raise()
	check("after the raise", Gap{Deliveries: 1, Unknown: 1})
	// A partition that retention cannot have touched begins later for being quiet.
	w.keepFor(w.names.Attempts(), 24*time.Hour)
	check("kept for a day", Gap{Deliveries: 1, Missing: 1})
}

func TestAResendFindsWhatWasWrittenBeforeThePartitionsWereRaised(t *testing.T) {
	w := newWorld(t)
	since := time.Now().Add(-time.Minute)
	id, now := moved(0), kafka.Partition([]byte(moved(0)), raisedTo)
	astray := (partitionOf(id) + 1) % worldPartitions // a producer has a partitioner of its own
	lost := w.publishIn(astray, id, "lost")
	w.forwarded(lost, partitionOf(id))
	w.lose(w.names.Deliveries(), astray, 1)
	before := w.publishIn(partitionOf(id), id, "before")
	misrouted := w.publishIn(astray, id, "misrouted")
	w.forwarded(misrouted, partitionOf(id))
	late := w.publishIn(partitionOf(id), id, "late") // nobody has read it before the raise
	w.publishIn(partitionOf("other"), "other", "other")
	w.raise()
	w.forwarded(late, now)
	after := w.publishIn(now, id, "after")
	for _, d := range []schemas.Delivery{lost, before, misrouted, late, after} {
		for _, past := range []Past{{Event: d.Event.ID}, {Delivery: d.ID()}, {Event: d.MessageID(), Endpoints: []string{id}}} {
			if plan, _, err := w.store.PlanResend(w.ctx(), Job{}, past); err != nil || plan.Write != 1 {
				t.Errorf("%+v: %+v %v", past, plan, err)
			}
		}
	}
	plan, _, err := w.store.PlanResend(w.ctx(), Job{}, Past{Endpoints: []string{id}, Since: since})
	if err != nil || plan.Write != 5 {
		t.Fatalf("%+v %v", plan, err)
	}
	rep, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{})
	if err != nil || rep.Run.Counts.Written != 5 {
		t.Fatalf("%+v %v", rep, err)
	}
	got := map[string]int{}
	for _, rec := range w.read(w.names.Deliveries()) {
		if of := header(rec.Headers, schemas.HeaderResendOf); of != "" && rec.Partition == now {
			got[of]++
		}
	}
	for _, d := range []schemas.Delivery{lost, before, misrouted, late, after} {
		if got[d.ID()] != 1 {
			t.Errorf("%s was sent %d times", d.Event.ID, got[d.ID()])
		}
	}
}

func TestMissingKnowsWhatHappenedBeforeThePartitionsWereRaised(t *testing.T) {
	w := newWorld(t)
	since := time.Now().Add(-time.Minute)
	id, held := moved(0), ""
	for i := 1; held == ""; i++ { // whose part of the delivery log is whole
		if partitionOf(moved(i)) != partitionOf(id) {
			held = moved(i)
		}
	}
	then, now := partitionOf(id), kafka.Partition([]byte(id), raisedTo)
	old := w.publishIn(then, id, "old")
	w.attemptedIn(then, &old, schemas.OutcomeDelivered)
	w.flush()
	w.lose(w.names.Attempts(), then, 1)
	for _, o := range []schemas.Outcome{schemas.OutcomeDelivered, schemas.OutcomeDead, schemas.OutcomeRetry} {
		d := w.publishIn(then, id, string(o))
		w.attemptedIn(then, &d, o)
	}
	revived := w.publishIn(then, id, "dead, and tried again later")
	w.attemptedIn(then, &revived, schemas.OutcomeDead)
	w.publishIn(partitionOf(held), held, "held")
	next := int64(1)
	h, err := json.Marshal(schemas.Health{Next: &next})
	if err != nil {
		t.Fatal(err)
	}
	w.writer.Write(kafka.Message{Topic: w.names.Health(), Partition: partitionOf(held), Key: []byte(held), Value: h}, nil)
	w.raise()
	w.attemptedIn(now, &revived, schemas.OutcomeRetry)
	w.publishIn(now, id, "missing")
	w.writer.Write(kafka.Message{Topic: w.names.Health(), Partition: kafka.Partition([]byte(held), raisedTo), Key: []byte(held), Value: []byte("{}")}, nil)
	w.flush()
	w.dispatched()
	for _, endpoints := range [][]string{{id}, nil} {
		plan, gaps, err := w.store.PlanResend(w.ctx(), Job{}, Past{Endpoints: endpoints, Since: since, Missing: true})
		if err != nil || plan.Write != 1 {
			t.Fatalf("%+v %v", plan, err)
		}
		if want := (Gap{Deliveries: 6, Delivered: 1, Dead: 1, Retrying: 2, Unknown: 1, Missing: 1}); *gaps[id] != want {
			t.Errorf("%+v", gaps[id])
		}
		if want := (Gap{Deliveries: 1, Held: 1}); endpoints == nil && *gaps[held] != want {
			t.Errorf("%+v", gaps[held])
		}
	}
}

func (w *world) healthIn(p int32, id string, h *schemas.Health, headers ...schemas.Header) {
	w.Helper()
	var value []byte
	if h != nil {
		var err error
		if value, err = json.Marshal(h); err != nil {
			w.Fatal(err)
		}
	}
	w.writer.Write(kafka.Message{Topic: w.names.Health(), Partition: p, Key: []byte(id), Value: value, Headers: headers}, nil)
	w.flush()
}

// breakerOf is what a preview says of an endpoint, and what a wait for it and others does.
func (w *world) breakerOf(id string, others ...string) string {
	w.Helper()
	ids := append(others, id)
	states, err := w.store.endpointStates(w.ctx(), ids)
	if err != nil {
		w.Fatal(err)
	}
	f := &follower{store: w.store, names: ids}
	f.look(w.ctx())
	if waits := f.looks.states[id].Breaker; waits != states[id].Breaker {
		w.Errorf("%s in a preview, %s to who waits", states[id].Breaker, waits)
	}
	return states[id].Breaker
}

func openBreaker() *schemas.Health {
	return &schemas.Health{Version: 1, Held: 3, Since: &schemas.Episode{FailingSince: time.Now(), Attempts: 9, BreakerStep: 1, OpenUntil: time.Now().Add(time.Hour)}}
}

func TestTheBreakerOfAnEndpointIsThatOfThePartitionItHasNow(t *testing.T) {
	w := newWorld(t)
	id := moved(0)
	w.endpoint(id)
	w.healthIn(partitionOf(id), id, openBreaker())
	if got := w.breakerOf(id); got != "open" {
		t.Errorf("%s before the raise", got)
	}
	w.raise()
	home, others := kafka.Partition([]byte(id), raisedTo), []string{}
	for p := range int32(raisedTo) { // one in each partition, so that all are read
		for i := 0; len(others) <= int(p); i++ {
			if other := fmt.Sprintf("ep_%d", i); kafka.Partition([]byte(other), raisedTo) == p {
				others = append(others, other)
			}
		}
	}
	for range 10 { // maps have no order
		if got := w.breakerOf(id, others...); got != "closed" {
			t.Fatalf("%s by what stands where it was", got)
		}
	}
	w.healthIn(home, id, openBreaker())
	w.healthIn(partitionOf(id), id, nil)
	for range 10 {
		if got := w.breakerOf(id, others...); got != "open" {
			t.Fatalf("%s by what stands where it was", got)
		}
	}
}

func TestWhoLostThePartitionDoesNotOpenABreakerInAPreview(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	p := partitionOf("ep_1")
	for epoch := range int64(2) {
		claim, err := json.Marshal(schemas.ClaimRecord{Epoch: epoch + 1})
		if err != nil {
			t.Fatal(err)
		}
		w.writer.Write(kafka.Message{Topic: w.names.Health(), Partition: p, Key: fmt.Appendf(nil, "%s.%d", schemas.ClaimKey, epoch), Value: claim}, nil)
	}
	w.healthIn(p, "ep_1", openBreaker(), schemas.Header{Key: schemas.HeaderClaim, Value: []byte("0")})
	if got := w.breakerOf("ep_1"); got != "closed" {
		t.Error(got)
	}
	w.healthIn(p, "ep_1", openBreaker(), schemas.Header{Key: schemas.HeaderClaim, Value: []byte("1")})
	if got := w.breakerOf("ep_1"); got != "open" {
		t.Error(got)
	}
}
