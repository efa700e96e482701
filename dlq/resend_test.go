package dlq

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// publish writes an event as a producer does and returns its delivery id.
func (w *world) publish(endpoint, event string, headers ...schemas.Header) string {
	w.Helper()
	d := schemas.Delivery{EndpointID: endpoint, Event: schemas.Event{ID: event, Source: "/test", Type: "a.b", SpecVersion: "1.0"}, Extra: headers}
	got := make(chan int64, 1)
	part := partitionOf(endpoint)
	w.writer.Write(kafka.Message{Topic: w.names.Deliveries(), Partition: part, Key: []byte(endpoint), Value: []byte("x" + event), Headers: d.Headers()},
		func(res kafka.Written) { got <- res.Offset })
	offset := <-got
	for _, rec := range w.read(w.names.Deliveries()) {
		if rec.Partition == part && rec.Offset == offset {
			p, err := schemas.ParseDelivery(rec)
			if err != nil {
				w.Fatal(err)
			}
			return p.ID()
		}
	}
	w.Fatal("it is not there")
	return ""
}

// attempted writes what a dispatcher does when a first life has come to something.
func (w *world) attempted(id, endpoint string, outcome schemas.Outcome) {
	w.attemptedAgain(id, endpoint, 0, outcome)
}

func (w *world) attemptedAgain(id, endpoint string, generation int, outcome schemas.Outcome) {
	if outcome == schemas.OutcomeDead {
		origin, _, err := schemas.ParseDeliveryID(id)
		if err != nil {
			w.Fatal(err)
		}
		w.die(schemas.Delivery{EndpointID: endpoint, Origin: origin, Generation: generation, Attempt: 1, Payload: []byte("x"),
			Event: schemas.Event{ID: "e", Source: "/test", Type: "a.b", SpecVersion: "1.0"}}, schemas.ReasonExhausted, time.Now())
	}
	w.logged(id, endpoint, generation, outcome)
}

func (w *world) logged(id, endpoint string, generation int, outcome schemas.Outcome) {
	a := schemas.Attempt{DeliveryID: id, EndpointID: endpoint, Generation: generation, Outcome: outcome, Number: 1}
	w.writer.Write(kafka.Message{Topic: w.names.Attempts(), Partition: partitionOf(endpoint), Key: []byte(endpoint), Value: schemas.AppendAttempt(nil, &a)}, nil)
}

func TestAResendIsANewDeliveryOfTheSameEvent(t *testing.T) {
	w := newWorld(t)
	id := w.publish("ep_1", "e1", schemas.Header{Key: "x-own", Value: []byte("v")})
	w.attempted(id, "ep_1", schemas.OutcomeDelivered)
	w.publish("ep_1", "e2")
	w.flush()
	plan, _, err := w.store.PlanResend(w.ctx(), Job{Who: "anna"}, Past{Event: "e1"})
	if err != nil || plan.Write != 1 {
		t.Fatalf("%+v %v", plan, err)
	}
	rep, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{})
	if err != nil || rep.Run.Kind != schemas.RunResend || rep.Run.Counts.Written != 1 {
		t.Fatalf("%+v %v", rep, err)
	}
	all := w.deliveries()
	n := all[len(all)-1]
	if len(all) != 3 || n.ID() == id || n.ResendOf != id || n.MessageID() != all[0].MessageID() || string(n.Payload) != "xe1" || n.Generation != 0 ||
		len(n.Extra) != 1 || n.Extra[0].Key != "x-own" {
		t.Errorf("%+v", n)
	}
	if plan, _, err := w.store.PlanResend(w.ctx(), Job{}, Past{Event: n.MessageID()}); err != nil || plan.Write != 1 {
		t.Errorf("the resend counts as another event: %+v %v", plan, err)
	}
}

func TestAResendTellsWhatBecameOfItsDeliveries(t *testing.T) {
	w := newWorld(t)
	for i := range 12 {
		w.publish("ep_1", fmt.Sprintf("e%d", i))
		w.publish("ep_2", fmt.Sprintf("e%d", i))
	}
	first := len(w.deliveries())
	stop := w.answer(w.ctx(), func(d *schemas.Delivery) schemas.Outcome {
		if d.EndpointID == "ep_2" && d.Run != "" {
			return schemas.OutcomeDead
		}
		return schemas.OutcomeDelivered
	})
	defer stop()
	resend := func(endpoint string) *Plan {
		plan, _, err := w.store.PlanResend(w.ctx(), Job{}, Past{Endpoints: []string{endpoint}})
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	rep, err := w.store.Execute(w.ctx(), resend("ep_1"), w.runs(), Options{Wait: true})
	if want := (OutcomeCounts{Delivered: 12}); err != nil || rep.Outcomes.All != want {
		t.Errorf("%+v %v", rep.Outcomes, err)
	}
	rep, err = w.store.Execute(w.ctx(), resend("ep_2"), w.runs(), Options{Wait: true})
	if want := (OutcomeCounts{Dead: 12}); !errors.Is(err, ErrUndelivered) || rep.Outcomes.All != want || rep.Outcomes.Endpoints["ep_2"] != want {
		t.Errorf("%+v %v", rep.Outcomes, err)
	}
	out, err := w.open().Follow(w.ctx(), &rep.Run, Options{}) // a colleague, later
	if want := (OutcomeCounts{Dead: 12}); !errors.Is(err, ErrUndelivered) || out.All != want {
		t.Errorf("%+v %v", out, err)
	}
	if n := len(w.deliveries()); n != first+24 {
		t.Errorf("%d deliveries", n)
	}
}

// dispatched says that the dispatcher has committed all that stands in deliveries now.
func (w *world) dispatched() { w.Helper(); w.commit("dispatcher", w.names.Deliveries()) }

// commit sets a group to the end of a topic.
func (w *world) commit(group, topic string) {
	w.Helper()
	adm, err := w.store.cfg.NewAdmin()
	if err != nil {
		w.Fatal(err)
	}
	defer adm.Close()
	ends, err := adm.ListEndOffsets(w.ctx(), topic)
	if err != nil {
		w.Fatal(err)
	}
	if err := adm.CommitAllOffsets(w.ctx(), w.names.Group(group), ends.Offsets()); err != nil {
		w.Fatal(err)
	}
}

func TestMissingFindsWhatWasNeverAttempted(t *testing.T) {
	w := newWorld(t)
	since := time.Now().Add(-time.Minute)
	outcomes := []schemas.Outcome{schemas.OutcomeDelivered, schemas.OutcomeDead, schemas.OutcomeRetry, schemas.OutcomeInterrupted, ""}
	missing := map[string]bool{}
	for i, o := range outcomes {
		id := w.publish("ep_1", "e"+string(rune('a'+i)))
		switch o {
		case "":
			missing[id] = true
		case schemas.OutcomeInterrupted:
			missing[id] = true
			fallthrough
		default:
			w.attempted(id, "ep_1", o)
		}
	}
	w.publish("ep_held", "h")
	next := int64(1)
	h, err := json.Marshal(schemas.Health{Next: &next})
	if err != nil {
		t.Fatal(err)
	}
	w.writer.Write(kafka.Message{Topic: w.names.Health(), Partition: partitionOf("ep_held"), Key: []byte("ep_held"), Value: h}, nil)
	w.flush()
	w.dispatched()
	w.publish("ep_1", "backlog") // the dispatcher has yet to read it
	w.flush()
	plan, gaps, err := w.store.PlanResend(w.ctx(), Job{}, Past{Since: since, Missing: true})
	if err != nil || plan.Write != 2 {
		t.Fatalf("%+v %v", plan, err)
	}
	if want := (Gap{Deliveries: 6, Delivered: 1, Dead: 1, Retrying: 1, Held: 1, Missing: 2}); *gaps["ep_1"] != want {
		t.Errorf("%+v", gaps["ep_1"])
	}
	if want := (Gap{Deliveries: 1, Held: 1}); *gaps["ep_held"] != want {
		t.Errorf("%+v", gaps["ep_held"])
	}
	if _, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{}); err != nil {
		t.Fatal(err)
	}
	for _, d := range w.deliveries() {
		if d.ResendOf != "" {
			if !missing[d.ResendOf] {
				t.Errorf("%s was not missing", d.ResendOf)
			}
			delete(missing, d.ResendOf)
		}
	}
	if len(missing) != 0 {
		t.Errorf("not sent: %v", missing)
	}
	if plan, gaps, err := w.store.PlanResend(w.ctx(), Job{}, Past{Since: since, Missing: true}); err != nil || plan.Write != 0 || gaps["ep_1"].Held != 3 {
		t.Errorf("it would be sent twice: %d %v", plan.Write, err)
	}
}

// The delivery log keeps less than deliveries does: what it has no attempt of any more
// was delivered, as far as anybody knows.
func TestWhatIsOlderThanTheDeliveryLogIsNotMissing(t *testing.T) {
	w := newWorld(t)
	since := time.Now().Add(-time.Minute)
	old := w.publish("ep_1", "old")
	w.attempted(old, "ep_1", schemas.OutcomeDelivered)
	w.publish("ep_2", "missing") // whose partition of the log is whole
	w.flush()
	w.dispatched()
	adm, err := w.cfg.NewAdmin()
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	var gone kadm.Offsets
	gone.Add(kadm.Offset{Topic: w.names.Attempts(), Partition: partitionOf("ep_1"), At: 1})
	if deleted, err := adm.DeleteRecords(w.ctx(), gone); err != nil || deleted.Error() != nil {
		t.Fatal(err, deleted.Error())
	}
	plan, gaps, err := w.store.PlanResend(w.ctx(), Job{}, Past{Since: since, Missing: true})
	if err != nil || plan.Write != 1 {
		t.Fatalf("%+v %v", plan, err)
	}
	if *gaps["ep_1"] != (Gap{Deliveries: 1, Unknown: 1}) || *gaps["ep_2"] != (Gap{Deliveries: 1, Missing: 1}) {
		t.Errorf("%+v %+v", gaps["ep_1"], gaps["ep_2"])
	}
}

// A resend brings an endpoint what it has not had; a replay to another one does not.
func TestOnlyWhatItsOwnEndpointHasHadIsDelivered(t *testing.T) {
	w := newWorld(t)
	since := time.Now().Add(-time.Minute)
	for _, to := range []string{"ep_1", "ep_2"} {
		id := w.publish("ep_1", "for "+to)
		w.attempted(id, "ep_1", schemas.OutcomeDead)
		a := schemas.Attempt{DeliveryID: "other." + to, EndpointID: to, Outcome: schemas.OutcomeDelivered, Number: 1, ResendOf: id}
		w.writer.Write(kafka.Message{Topic: w.names.Attempts(), Partition: partitionOf(to), Key: []byte(to), Value: schemas.AppendAttempt(nil, &a)}, nil)
	}
	w.flush()
	w.dispatched()
	for _, endpoint := range [][]string{nil, {"ep_1"}} {
		_, gaps, err := w.store.PlanResend(w.ctx(), Job{}, Past{Endpoints: endpoint, Since: since, Missing: true})
		if err != nil || *gaps["ep_1"] != (Gap{Deliveries: 2, Delivered: 1, Dead: 1}) {
			t.Errorf("--endpoint %q: %+v %v", endpoint, gaps["ep_1"], err)
		}
	}
}

// Nothing was attempted of a delivery that its producer has scheduled, also when its time
// has come and the releaser, or the dispatcher after it, is behind.
func TestWhatIsScheduledIsOnItsWayUntilItIsNowhere(t *testing.T) {
	w := newWorld(t)
	tier := w.names.Retry(time.Minute)
	w.topic(tier, 1)
	since := time.Now().Add(-time.Minute)
	scheduled := map[string]schemas.Delivery{}
	for _, event := range []string{"waits", "released", "lost"} {
		id := w.publish("ep_1", event)
		for _, rec := range w.read(w.names.Deliveries()) {
			if d, err := schemas.ParseDelivery(rec); err == nil && d.ID() == id {
				d.NotBefore = time.Now().Add(-time.Second)
				scheduled[event] = d
			}
		}
	}
	put := func(topic string, part int32, d schemas.Delivery) {
		w.writer.Write(kafka.Message{Topic: topic, Partition: part, Key: []byte(d.EndpointID), Value: d.Payload, Headers: d.Headers()}, nil)
		w.flush()
	}
	w.dispatched()
	put(tier, 0, scheduled["released"])
	w.commit("releaser", tier)
	released := scheduled["released"]
	released.Released = time.Now()
	put(w.names.Deliveries(), partitionOf("ep_1"), released)
	put(tier, 0, scheduled["waits"])
	plan, gaps, err := w.store.PlanResend(w.ctx(), Job{}, Past{Since: since, Missing: true})
	if err != nil || plan.Write != 1 || *gaps["ep_1"] != (Gap{Deliveries: 3, Held: 2, Missing: 1}) {
		t.Errorf("%+v %+v %v", plan, gaps["ep_1"], err)
	}
}

// topic makes a topic of a producer's.
func (w *world) topic(name string, partitions int32) {
	w.Helper()
	adm, err := w.cfg.NewAdmin()
	if err != nil {
		w.Fatal(err)
	}
	defer adm.Close()
	if _, err := adm.CreateTopic(w.ctx(), partitions, 1, nil, name); err != nil {
		w.Fatal(err)
	}
	testkit.AwaitTopics(w.TB, w.cfg.Brokers, name)
}

// What the router has never written is found in the source, for the endpoints that
// subscribe now; what it wrote is judged by deliveries, and what it has yet to come to
// is not missing.
func TestMissingLooksIntoSourcesToo(t *testing.T) {
	w := newWorld(t)
	source := w.names.Prefix + "orders"
	w.topic(source, 2)
	src := &Sources{Topics: []string{source}, Read: schemas.ParseSource, Match: func(_, eventType string) []string {
		return map[string][]string{"paid": {"ep_1", "ep_2"}, "made": {"ep_2"}}[eventType]
	}}
	event := func(part int32, id, kind string) schemas.Delivery {
		got := make(chan int64, 1)
		w.writer.Write(kafka.Message{Topic: source, Partition: part, Value: []byte("x" + id), Headers: []schemas.Header{
			{Key: "ce_id", Value: []byte(id)}, {Key: "ce_source", Value: []byte("/shop")}, {Key: "ce_type", Value: []byte(kind)}}}, func(res kafka.Written) { got <- res.Offset })
		offset := <-got
		for _, rec := range w.read(source) {
			if rec.Partition == part && rec.Offset == offset {
				d, err := schemas.ParseSource(rec)
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
		}
		t.Fatal("it is not there")
		return schemas.Delivery{}
	}
	deliver := func(d schemas.Delivery, endpoint string) string {
		d.EndpointID = endpoint
		w.writer.Write(kafka.Message{Topic: w.names.Deliveries(), Partition: partitionOf(endpoint), Key: []byte(endpoint), Value: d.Payload, Headers: d.Headers()}, nil)
		return d.ID()
	}
	since := time.Now().Add(-time.Minute)
	w.attempted(deliver(event(0, "e1", "paid"), "ep_1"), "ep_1", schemas.OutcomeDelivered) // and ep_2 came later
	event(1, "e2", "made")
	event(1, "e3", "nobody's")
	w.flush()
	w.dispatched()
	w.commit("router", source)
	event(0, "e4", "paid") // the router has yet to come to it
	w.flush()
	past := Past{Since: since, Missing: true, Sources: src}
	plan, gaps, err := w.store.PlanResend(w.ctx(), Job{}, past)
	if err != nil || plan.Write != 2 {
		t.Fatalf("%+v %v", plan, err)
	}
	if want := (Gap{Deliveries: 3, Missing: 2, Held: 1}); *gaps["ep_2"] != want {
		t.Errorf("%+v", gaps["ep_2"])
	}
	if want := (Gap{Deliveries: 2, Delivered: 1, Held: 1}); *gaps["ep_1"] != want {
		t.Errorf("%+v", gaps["ep_1"])
	}
	rep, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{})
	if err != nil || rep.Run.Counts.Written != 2 {
		t.Fatalf("%+v %v", rep, err)
	}
	got := map[string]bool{}
	for _, d := range w.deliveries() {
		if d.ResendOf != "" {
			got[d.EndpointID+" "+d.Event.ID+" "+string(d.Payload)] = true
			if d.MessageID() != schemas.MessageID("/shop", d.Event.ID) {
				t.Errorf("%+v", d)
			}
		}
	}
	if len(got) != 2 || !got["ep_2 e1 xe1"] || !got["ep_2 e2 xe2"] {
		t.Errorf("%v", got)
	}
	if plan, _, err := w.store.PlanResend(w.ctx(), Job{}, past); err != nil || plan.Write != 0 {
		t.Errorf("it would be sent twice: %d %v", plan.Write, err)
	}
	past.Missing = false
	past.Event = "e1"
	if plan, _, err := w.store.PlanResend(w.ctx(), Job{}, past); err != nil || plan.Write != 2 {
		t.Errorf("one event, in deliveries and in its source: %+v %v", plan, err)
	}
}
