package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// remembering plays an owner that attempts the first copy of a delivery, to the outcome
// that is told, and drops the others.
func (w *world) remembering(outcome func(*schemas.Delivery) schemas.Outcome) (stop func()) {
	known := map[string]bool{}
	return w.answer(w.ctx(), func(d *schemas.Delivery) schemas.Outcome {
		key := schemas.LetterKey(d.ID(), d.Generation)
		if known[key] {
			return schemas.OutcomeDuplicate
		}
		known[key] = true
		return outcome(d)
	})
}

func allDelivered(*schemas.Delivery) schemas.Outcome { return schemas.OutcomeDelivered }

// attempts counts what the attempts say.
func (w *world) attempts() map[schemas.Outcome]int {
	w.Helper()
	out := map[schemas.Outcome]int{}
	for _, rec := range w.read(w.names.Attempts()) {
		var a schemas.Attempt
		if err := json.Unmarshal(rec.Value, &a); err != nil {
			w.Fatal(err)
		}
		out[a.Outcome]++
	}
	return out
}

// keepFor changes a topic's retention, and waits until brokers have heard of it.
func (w *world) keepFor(topic string, d time.Duration) {
	w.Helper()
	ms := strconv.FormatInt(d.Milliseconds(), 10)
	if changed, err := w.admin().AlterTopicConfigs(w.ctx(), []kadm.AlterConfig{{Name: "retention.ms", Value: &ms}}, topic); err != nil || changed[0].Err != nil {
		w.Fatal(changed, err)
	}
	waitFor(w.TB, func() bool {
		keep, err := w.store.retention(w.ctx(), topic)
		return err == nil && keep == d
	})
}

// heldTombstones are those of a run whose process stands still between the two writes.
type heldTombstones struct {
	writer
	release chan struct{}
	wg      sync.WaitGroup
}

func (h *heldTombstones) Write(m kafka.Message, done func(kafka.Written)) {
	if m.Value != nil {
		h.writer.Write(m, done)
		return
	}
	h.wg.Go(func() { <-h.release; h.writer.Write(m, done) })
}

func (h *heldTombstones) Close(ctx context.Context) error {
	h.wg.Wait()
	return h.writer.Close(ctx)
}

// between begins a run over all letters, and hands over when it has written them and
// settled none. What it returns lets that run end.
func (w *world) between() (end func() (Report, error)) {
	w.Helper()
	h := &heldTombstones{release: make(chan struct{})}
	store := w.open()
	w.wrapWriter(store, func(inner writer) writer { h.writer = inner; return h })
	plan, runs, ctx := w.plan(Job{}), w.runs(), w.ctx()
	ended := make(chan struct{})
	var rep Report
	var err error
	go func() {
		defer close(ended)
		rep, err = store.Execute(ctx, plan, runs, Options{Wait: true})
	}()
	waitFor(w.TB, func() bool { return len(w.deliveries()) == int(plan.Write) })
	return func() (Report, error) {
		close(h.release)
		<-ended
		return rep, err
	}
}

func TestARunThatIsResumedTellsWhatBecameOfAllThatItWrote(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2")
	w.many(400, "ep_1", "ep_2")
	stop := w.remembering(allDelivered)
	defer stop()
	id, _ := w.kill(w.plan(Job{}), 150)
	w.age(id)
	st, err := w.runs().Get(w.ctx(), id)
	if err != nil {
		t.Fatal(err)
	}
	job, err := ResumeJob(st.Run)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := w.store.Execute(w.ctx(), w.plan(job), w.runs(), Options{Wait: true})
	if err != nil || rep.Outcomes == nil || rep.Outcomes.All.Delivered != 400 || rep.Outcomes.All.Total() != 400 {
		t.Fatalf("%+v %v", rep.Outcomes, err)
	}
	if n := w.attempts()[schemas.OutcomeDelivered]; n != 400 {
		t.Errorf("the receiver got %d", n)
	}
	t.Logf("%d copies", len(w.deliveries())-400)
}

func TestOfTwoForcedRunsEachIsToldWhatBecameOfTheFirstCopies(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2")
	w.many(60, "ep_1", "ep_2")
	stop := w.remembering(allDelivered)
	defer stop()
	end := w.between()
	waitFor(t, func() bool { return w.attempts()[schemas.OutcomeDelivered] == 60 }) // before the second run begins
	rep, err := w.store.Execute(w.ctx(), w.plan(Job{Force: true}), w.runs(), Options{Wait: true})
	if want := (OutcomeCounts{Delivered: 60, Duplicate: 60}); err != nil || rep.Outcomes.All != want {
		t.Errorf("the second: %+v %v", rep.Outcomes, err)
	}
	if rep, err := end(); err != nil || rep.Outcomes.All.Delivered != 60 {
		t.Errorf("the first: %+v %v", rep.Outcomes, err)
	}
	if n := w.attempts(); n[schemas.OutcomeDelivered] != 60 || n[schemas.OutcomeDuplicate] != 60 {
		t.Errorf("the receiver: %v", n)
	}
}

func TestADuplicateWhoseFirstCopyDiedIsDeadAgain(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2")
	w.many(20, "ep_1", "ep_2")
	stop := w.remembering(func(d *schemas.Delivery) schemas.Outcome {
		if d.EndpointID == "ep_2" {
			return schemas.OutcomeDead
		}
		return schemas.OutcomeDelivered
	})
	defer stop()
	end := w.between()
	waitFor(t, func() bool { return w.attempts()[schemas.OutcomeDead] == 10 })
	rep, err := w.store.Execute(w.ctx(), w.plan(Job{Force: true}), w.runs(), Options{Wait: true})
	if want := (OutcomeCounts{Delivered: 10, Dead: 10, Duplicate: 20}); !errors.Is(err, ErrUndelivered) || err.Error() != "10 of 20 were not delivered: 10 died" || rep.Outcomes.All != want {
		t.Errorf("%+v %v", rep.Outcomes, err)
	}
	if _, err := end(); !errors.Is(err, ErrUndelivered) {
		t.Error(err)
	}
}

// It is on hold, or retrying: what becomes of it comes later, and is waited for.
func TestADuplicateWhoseFirstCopyIsOnItsWayIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_held", "ep_retrying")
	w.many(4, "ep_held", "ep_retrying")
	var mu sync.Mutex
	var first []schemas.Delivery
	stop := w.remembering(func(d *schemas.Delivery) schemas.Outcome {
		mu.Lock()
		defer mu.Unlock()
		first = append(first, *d)
		if d.EndpointID == "ep_held" {
			return schemas.OutcomeInterrupted
		}
		return schemas.OutcomeRetry
	})
	defer stop()
	end := w.between()
	waitFor(t, func() bool { return w.attempts()[schemas.OutcomeRetry] == 2 })
	came := false
	rep, err := w.store.Execute(w.ctx(), w.plan(Job{Force: true}), w.runs(), Options{Wait: true, Following: func(o Outcomes) {
		if want := (OutcomeCounts{Open: 2, Retrying: 2, Duplicate: 4}); came || o.All != want {
			return
		}
		came = true
		mu.Lock()
		defer mu.Unlock()
		for i := range first {
			d := &first[i]
			a := schemas.Attempt{DeliveryID: d.ID(), EndpointID: d.EndpointID, Outcome: schemas.OutcomeDelivered, Number: 2, Generation: d.Generation, Run: d.Run}
			w.writer.Write(kafka.Message{Topic: w.names.Attempts(), Partition: partitionOf(d.EndpointID), Key: []byte(d.EndpointID), Value: schemas.AppendAttempt(nil, &a)}, nil)
		}
	}})
	if want := (OutcomeCounts{Delivered: 4, Duplicate: 4}); err != nil || !came || rep.Outcomes.All != want {
		t.Errorf("%+v %v", rep.Outcomes, err)
	}
	if _, err := end(); err != nil {
		t.Error(err)
	}
}

func TestADuplicateWhoseFirstCopysAttemptsAreGoneIsUnknown(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(4, "ep_1")
	stop := w.remembering(allDelivered)
	defer stop()
	end := w.between()
	defer func() { _, _ = end() }()
	waitFor(t, func() bool { return w.attempts()[schemas.OutcomeDelivered] == 4 })
	w.keepFor(w.names.Attempts(), time.Minute)
	w.lose(w.names.Attempts(), partitionOf("ep_1"), 3)
	rep, err := w.store.Execute(w.ctx(), w.plan(Job{Force: true}), w.runs(), Options{Wait: true})
	if want := (OutcomeCounts{Delivered: 1, Unknown: 3, Duplicate: 4}); !errors.Is(err, ErrUndelivered) || rep.Outcomes.All != want ||
		err.Error() != "what became of 3 of 4 cannot be told, for the topics no longer say" {
		t.Errorf("%+v %v", rep.Outcomes, err)
	}
}

// Whoever waits wishes to know of all that was selected.
func TestWhatWasSkippedWasNotDelivered(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.endpointAs(schemas.Endpoint{ID: "ep_off", State: schemas.StateDisabled, Version: 2})
	w.many(10, "ep_1")
	w.many(2, "ep_off")
	plan := w.plan(Job{})
	for _, l := range w.written[:3] {
		w.bury(l) // by a colleague, while the prompt stood
	}
	w.flush()
	stop := w.remembering(allDelivered)
	defer stop()
	rep, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{Wait: true})
	if !errors.Is(err, ErrUndelivered) || err.Error() != "5 of 12 were not delivered: 5 were skipped" || rep.Outcomes.All.Delivered != 7 {
		t.Errorf("%+v %v", rep, err)
	}
}
