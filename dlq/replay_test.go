package dlq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestAReplayedLetterIsTheSameEventWithAFreshLife(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	d := w.delivery("ep_1")
	d.Event.Subject, d.Event.Tenant, d.Traceparent, d.Tracestate = "s", "acme", "00-1-2-01", "a=b"
	d.Trace = "00-1-3-01"
	d.Extra = []schemas.Header{{Key: "x-own", Value: []byte{0, 255}}}
	d.Generation, d.NotBefore, d.HopUntil, d.Forwards, d.Run = 3, time.Now().Add(-time.Hour), time.Now(), 1, "run-old"
	l := w.die(d, schemas.ReasonExhausted, time.Now())
	w.flush()
	before := time.Now().Truncate(time.Millisecond)
	rep := w.execute(Job{Who: "anna", Why: "mended"}, Options{})
	got := w.deliveries()
	if len(got) != 1 {
		t.Fatalf("%d deliveries", len(got))
	}
	g := got[0]
	if g.ID() != l.ID() || g.Generation != 4 || g.Attempt != 0 || !g.FirstAttempt.IsZero() || !g.NotBefore.IsZero() || !g.HopUntil.IsZero() ||
		g.Forwards != 0 || g.LastStatus != 0 || g.Error != "" || g.Run != rep.Run.ID || g.Enqueued.Before(before) {
		t.Errorf("%+v", g)
	}
	if g.Event != l.Event || string(g.Payload) != string(l.Payload) || g.Traceparent != l.Traceparent || g.Tracestate != l.Tracestate || g.Trace != d.Trace ||
		string(g.Extra[0].Value) != string([]byte{0, 255}) {
		t.Errorf("%+v", g)
	}
	if open := w.letters(Filter{}); len(open) != 0 {
		t.Errorf("still open: %v", open)
	}
	st, err := w.runs().Get(w.ctx(), rep.Run.ID)
	if err != nil || st.State != schemas.RunDone || st.Counts.Written != 1 || st.Counts.Matched != 1 || st.Who != "anna" || st.Why != "mended" || st.Finished.IsZero() {
		t.Errorf("%+v %v", st, err)
	}
	// It dies again, in the same way.
	w.written = nil
	g.LastStatus, g.Error, g.Attempt = l.LastStatus, l.Error, 9
	w.die(g, l.Reason, time.Now())
	w.flush()
	sum, err := w.store.Summary(w.ctx(), Filter{})
	if err != nil || len(sum.Groups) != 1 || sum.Groups[0].Replayed != 1 || sum.Groups[0].SameWay != 1 {
		t.Errorf("%+v %v", sum.Groups[0], err)
	}
}

// rejecter is an owner whose receiver rejects at once: what is written to deliveries
// dies again, before or after the tombstone of its old letter.
func (w *world) rejecter(ctx context.Context) (stop func()) {
	return w.owner(ctx, func(rec *schemas.Record) {
		if d, err := schemas.ParseDelivery(*rec); err == nil {
			d.Attempt, d.LastStatus = 1, 400
			w.put(&letter{Letter: schemas.NewLetter(d, schemas.ReasonRejected, time.Now())})
		}
	})
}

// owner reads what is written to deliveries until it is stopped.
func (w *world) owner(ctx context.Context, take func(*schemas.Record)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	store := w.open()
	var wg sync.WaitGroup
	wg.Go(func() {
		at := make([]int64, worldPartitions)
		for range ticks(ctx, 20*time.Millisecond) {
			ends, err := store.reader.Ends(ctx, w.names.Deliveries())
			if err != nil {
				return
			}
			for p := range ends {
				_ = store.reader.ReadForwards(ctx, w.names.Deliveries(), int32(p), at[p], ends[p], 1<<20, func(recs []schemas.Record) error {
					for i := range recs {
						take(&recs[i])
					}
					return nil
				})
				at[p] = ends[p]
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func TestALetterThatDiesAgainBeforeItsTombstoneIsNotErased(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2", "ep_3")
	w.many(300, "ep_1", "ep_2", "ep_3")
	stop := w.rejecter(w.ctx())
	late := w.wrapWriter(w.store, func(inner writer) writer { return &lateTombstones{writer: inner, by: time.Second} })
	defer late()
	rep := w.execute(Job{}, Options{})
	waitFor(t, func() bool { return len(w.letters(Filter{Replayed: true})) == 300 })
	stop()
	open := w.letters(Filter{})
	if len(open) != 300 || rep.Settled != 300 {
		t.Fatalf("%d open, %d settled", len(open), rep.Settled)
	}
	for _, l := range w.written {
		if e, ok := open[schemas.LetterKey(l.ID(), 1)]; !ok || e.Reason != schemas.ReasonRejected {
			t.Fatalf("%s is not there again", l.ID())
		}
	}
}

func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience*30*time.Second)
	defer cancel()
	for !ok() {
		if !pause(ctx) {
			t.Fatal("it did not happen")
		}
	}
}

// pause is between two looks at Kafka; false when ctx has ended.
func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(20 * time.Millisecond):
		return true
	}
}

func TestARunThatIsKilledAndResumedLosesNothing(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2", "ep_3", "ep_4", "ep_5")
	w.many(2000, "ep_1", "ep_2", "ep_3", "ep_4", "ep_5")
	r := rand.New(rand.NewPCG(3, uint64(time.Now().UnixNano()))) //nolint:gosec // a test
	plan := w.plan(Job{Rate: 4000})
	var id string
	repeatsAllowed := 0
	for kill := range 4 {
		var unacknowledged int
		id, unacknowledged = w.kill(plan, 50+r.IntN(400))
		repeatsAllowed += unacknowledged
		w.age(id)          // as if half a minute had gone
		w.many(10, "ep_1") // die after the snapshot
		st, err := w.runs().Get(w.ctx(), id)
		if err != nil || st.Word() != "interrupted" {
			t.Fatalf("kill %d: %s %v", kill, st.Word(), err)
		}
		job, err := ResumeJob(st.Run)
		if err != nil {
			t.Fatal(err)
		}
		plan = w.plan(job)
	}
	rep, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{})
	if err != nil || rep.Run.ID != id || rep.Run.State != schemas.RunDone || rep.Run.Counts.Matched != 2000 {
		t.Fatalf("%+v %v", rep.Run, err)
	}
	lives, repeats := w.lives(), 0
	for i, l := range w.written {
		n := lives[schemas.LetterKey(l.ID(), 1)]
		switch {
		case i < 2000 && n == 0:
			t.Fatalf("%s is lost", l.ID())
		case i >= 2000 && n > 0:
			t.Fatalf("%s died after the snapshot", l.ID())
		}
		repeats += max(0, n-1)
	}
	if repeats > repeatsAllowed {
		t.Errorf("%d repeats, %d writes had no acknowledgement", repeats, repeatsAllowed)
	}
	if open := w.letters(Filter{}); len(open) != 40 {
		t.Errorf("%d open, want the 40 that died later", len(open))
	}
	t.Logf("%d repeats, %d allowed", repeats, repeatsAllowed)
}

func TestTwoRunsAtOnceDeliverTheUnion(t *testing.T) {
	t.Parallel() // it waits, by a rate
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2", "ep_3")
	w.many(900, "ep_1", "ep_2", "ep_3")
	other := w.open()
	a := w.plan(Job{Filter: Filter{Endpoints: []string{"ep_1", "ep_2"}}, Rate: 300})
	b, err := other.Plan(w.ctx(), Job{Kind: schemas.RunReplay, Filter: Filter{Endpoints: []string{"ep_2", "ep_3"}}, Rate: 300})
	if err != nil {
		t.Fatal(err)
	}
	runs := w.runs()
	started := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := w.store.Execute(w.ctx(), a, runs, Options{Started: func(schemas.Run) { close(started) }}); err != nil {
			t.Error(err)
		}
	})
	<-started
	var busy *BusyError
	if _, err := other.Execute(w.ctx(), b, w.runs(), Options{}); !errors.As(err, &busy) || !strings.Contains(err.Error(), "at work on the same endpoints; wait for it") {
		t.Errorf("the second run was not refused: %v", err)
	}
	b.Job.Force = true
	rep, err := other.Execute(w.ctx(), b, w.runs(), Options{})
	if err != nil {
		t.Error(err)
	}
	wg.Wait()
	lives, repeats := w.lives(), 0
	for _, l := range w.written {
		n := lives[schemas.LetterKey(l.ID(), 1)]
		if n == 0 {
			t.Fatalf("%s is lost", l.ID())
		}
		repeats += n - 1 // the owner drops them: the same delivery id, generation and attempt
	}
	if len(lives) != 900 {
		t.Errorf("%d deliveries", len(lives))
	}
	t.Logf("%d copies, skipped by the second: %v", repeats, rep.Run.Counts.Skipped)
}

func TestTheRateIsKept(t *testing.T) {
	t.Parallel() // it waits, by a rate
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2", "ep_3")
	w.many(1500, "ep_1", "ep_2", "ep_3")
	// From the beginning of the run, not from the first letter: that one may be late.
	began, last := time.Now(), time.Time{}
	w.execute(Job{Rate: 500}, Options{})
	for _, rec := range w.read(w.names.Deliveries()) {
		if rec.Timestamp.After(last) {
			last = rec.Timestamp
		}
	}
	if took := last.Sub(began); took < 2700*time.Millisecond || took > time.Minute {
		t.Errorf("1500 letters at 500/s took %s", took)
	}
}

func TestAnEndpointRateHoldsUpNobodyElse(t *testing.T) {
	t.Parallel() // it waits, by a rate
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2")
	w.many(300, "ep_1")
	w.many(20, "ep_2")
	began := time.Now()
	w.execute(Job{EndpointRate: 100}, Options{})
	times := map[string][]time.Time{}
	for _, rec := range w.read(w.names.Deliveries()) {
		times[string(rec.Key)] = append(times[string(rec.Key)], rec.Timestamp)
	}
	if len(times["ep_1"]) != 300 || len(times["ep_2"]) != 20 {
		t.Fatalf("%d and %d", len(times["ep_1"]), len(times["ep_2"]))
	}
	if took := times["ep_1"][299].Sub(began); took < 2800*time.Millisecond || took > time.Minute {
		t.Errorf("ep_1 took %s", took)
	}
	last, before := times["ep_2"][19], 0
	for _, at := range times["ep_1"] {
		if at.Before(last) {
			before++
		}
	}
	if before > 200 {
		t.Errorf("%d letters of ep_1 were written before the last of ep_2", before)
	}
}

func TestWhatCannotBeSentIsSkippedAndCounted(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_good")
	w.endpointAs(schemas.Endpoint{ID: "ep_off", State: schemas.StateDisabled, Version: 2, EventTypes: []string{"*"}})
	w.endpointAs(schemas.Endpoint{ID: "ep_gone", State: schemas.StateDeleted, Version: 2})
	w.writer.Write(kafka.Message{Topic: w.names.Endpoints(), Key: []byte("ep_broken"), Value: []byte("{not json")}, nil)
	w.many(10, "ep_good", "ep_off", "ep_gone", "ep_broken", "ep_good")
	null := w.delivery("ep_good")
	null.Payload = nil
	w.die(null, schemas.ReasonMalformed, time.Now())
	omitted := schemas.NewLetter(w.delivery("ep_good"), schemas.ReasonTooLarge, time.Now())
	omitted.OmitPayload()
	w.put(&letter{Letter: omitted})
	w.die(w.delivery(""), schemas.ReasonMalformed, time.Now())
	newer := schemas.NewLetter(w.delivery("ep_good"), schemas.ReasonExhausted, time.Now())
	newer.Mark = "elsewhere" // of a version that is to come
	w.put(&letter{Letter: newer})
	old := w.delivery("ep_good")
	old.Generation = math.MaxInt32
	w.die(old, schemas.ReasonExhausted, time.Now())
	w.flush()
	plan := w.plan(Job{})
	want := map[string]int64{SkipDisabled: 2, SkipDeleted: 2, SkipUnknown: 2, SkipNull: 1, SkipOmitted: 1, SkipNowhere: 1, SkipPayload: 1, SkipLives: 1}
	if fmt.Sprint(plan.Skip) != fmt.Sprint(want) || plan.Write != 4 || plan.Total() != 15 {
		t.Errorf("%v, %d of %d", plan.Skip, plan.Write, plan.Total())
	}
	rep, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{})
	if err != nil || fmt.Sprint(rep.Run.Counts.Skipped) != fmt.Sprint(want) || rep.Settled != 4 || len(w.letters(Filter{})) != 11 {
		t.Errorf("%+v %v", rep, err)
	}
	rep = w.execute(Job{IncludeDisabled: true}, Options{})
	if rep.Settled != 6 || len(w.letters(Filter{})) != 5 {
		t.Errorf("%+v", rep)
	}
}

func TestToAnotherEndpoint(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2")
	w.endpointAs(schemas.Endpoint{ID: "ep_off", State: schemas.StateDisabled, Version: 2})
	w.many(5, "ep_1")
	w.flush()
	var target *TargetError
	if _, err := w.store.Plan(w.ctx(), Job{Kind: schemas.RunReplay, ToEndpoint: "ep_off"}); !errors.As(err, &target) {
		t.Errorf("%v", err)
	}
	w.execute(Job{ToEndpoint: "ep_2"}, Options{})
	for i, d := range w.deliveries() {
		if d.EndpointID != "ep_2" || d.ResendOf != w.written[i].ID() || d.Origin != w.written[i].Origin || d.MessageID() != w.written[i].MessageID() {
			t.Errorf("%+v", d)
		}
	}
	if len(w.letters(Filter{})) != 0 {
		t.Error("their letters are still open")
	}
}

// answer plays the owner: it writes an attempt for each delivery of a run.
func (w *world) answer(ctx context.Context, outcome func(*schemas.Delivery) schemas.Outcome) (stop func()) {
	return w.owner(ctx, func(rec *schemas.Record) {
		d, _ := schemas.ParseDelivery(*rec)
		a := schemas.Attempt{DeliveryID: d.ID(), EndpointID: d.EndpointID, Outcome: outcome(&d), Number: 1, Generation: d.Generation, Run: d.Run}
		w.writer.Write(kafka.Message{Topic: w.names.Attempts(), Partition: rec.Partition, Key: []byte(d.EndpointID), Value: schemas.AppendAttempt(nil, &a)}, nil)
	})
}

func TestACanaryThatIsNotDeliveredSparesTheRest(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_good", "ep_bad")
	w.many(40, "ep_good", "ep_bad")
	stop := w.answer(w.ctx(), func(d *schemas.Delivery) schemas.Outcome {
		if d.EndpointID == "ep_good" {
			return schemas.OutcomeDelivered
		}
		return schemas.OutcomeRetry
	})
	defer stop()
	rep := w.execute(Job{Canary: true}, Options{})
	if rep.Run.Counts.Skipped[SkipCanary] != 19 || rep.Settled != 21 {
		t.Errorf("%+v", rep)
	}
	if open := w.letters(Filter{}); len(open) != 19 {
		t.Errorf("%d open", len(open))
	}
}

// A letter that another settled, or whose copy of another run was first, says nothing
// of its endpoint: the next one is the canary.
func TestACanaryThatTellsNothingIsFollowedByAnother(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_settled", "ep_duplicate")
	w.many(20, "ep_settled", "ep_duplicate")
	plan := w.plan(Job{Canary: true})
	w.bury(w.written[0]) // by a colleague, while the prompt stood
	w.flush()
	first := w.written[1].ID()
	stop := w.answer(w.ctx(), func(d *schemas.Delivery) schemas.Outcome {
		if d.ID() == first {
			return schemas.OutcomeDuplicate
		}
		return schemas.OutcomeDelivered
	})
	defer stop()
	rep, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{})
	if err != nil || rep.Settled != 19 || rep.Run.Counts.Skipped[SkipSettled] != 1 || rep.Run.Counts.Skipped[SkipCanary] != 0 {
		t.Errorf("%+v %v", rep, err)
	}
	if open := w.letters(Filter{}); len(open) != 0 {
		t.Errorf("%d open", len(open))
	}
}

func TestWaitReportsOutcomes(t *testing.T) {
	t.Parallel() // it waits, for outcomes
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2")
	w.many(8, "ep_1", "ep_2")
	n := 0
	stop := w.answer(w.ctx(), func(*schemas.Delivery) schemas.Outcome {
		n++
		return []schemas.Outcome{schemas.OutcomeDelivered, schemas.OutcomeDead}[n%4/3]
	})
	rep, err := w.store.Execute(w.ctx(), w.plan(Job{}), w.runs(), Options{Wait: true})
	stop()
	if want := (OutcomeCounts{Delivered: 6, Dead: 2}); !errors.Is(err, ErrUndelivered) || rep.Outcomes == nil || rep.Outcomes.All != want || len(rep.Outcomes.Endpoints) != 2 {
		t.Errorf("%+v %v", rep.Outcomes, err)
	}
	w.many(8, "ep_1", "ep_2")
	stop = w.answer(w.ctx(), func(*schemas.Delivery) schemas.Outcome { return schemas.OutcomeDelivered })
	rep, err = w.store.Execute(w.ctx(), w.plan(Job{}), w.runs(), Options{Wait: true})
	stop()
	if err != nil || rep.Outcomes.All.Delivered != 8 {
		t.Errorf("%+v %v", rep.Outcomes, err)
	}
	w.many(4, "ep_1")
	stop = w.answer(w.ctx(), func(*schemas.Delivery) schemas.Outcome { return schemas.OutcomeRetry })
	ctx, enough := context.WithCancel(w.ctx())
	rep, err = w.store.Execute(ctx, w.plan(Job{}), w.runs(), Options{Wait: true, Following: func(o Outcomes) {
		if o.All.Retrying == 4 {
			enough()
		}
	}})
	stop()
	if !errors.Is(err, context.Canceled) || rep.Outcomes == nil || rep.Outcomes.All.Retrying != 4 {
		t.Errorf("%+v %v", rep.Outcomes, err)
	}
	w.many(4, "ep_1") // of these nobody tells anything
	rep, err = w.store.Execute(w.ctx(), w.plan(Job{}), w.runs(), Options{Wait: true, WaitFor: time.Millisecond})
	if !errors.Is(err, ErrUndelivered) || rep.Outcomes.All.Open != 4 {
		t.Errorf("%+v %v", rep.Outcomes, err)
	}
}

// A canary that was too late was delivered in the end, and the rest was never sent.
func TestWaitDoesNotTakeWhatARunLeftForDelivered(t *testing.T) {
	t.Parallel() // it waits, for outcomes
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(10, "ep_1")
	stop := w.answer(w.ctx(), func(*schemas.Delivery) schemas.Outcome { return schemas.OutcomeDelivered })
	defer stop()
	rep, err := w.store.Execute(w.ctx(), w.plan(Job{Canary: true}), w.runs(), Options{Wait: true, CanaryWait: time.Nanosecond})
	if !errors.Is(err, ErrUndelivered) || rep.Outcomes.All.Delivered != 1 || rep.Run.Counts.Skipped[SkipLate] != 9 {
		t.Errorf("%+v %v", rep, err)
	}
}

func TestCancelFromAnotherShellStopsARun(t *testing.T) {
	t.Parallel() // it waits, by a rate
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(500, "ep_1")
	plan := w.plan(Job{Rate: 10}) // 50 s, were it not cancelled
	started := make(chan string, 1)
	ended := make(chan error, 1)
	var rep Report
	go func() {
		var err error
		rep, err = w.store.Execute(w.ctx(), plan, w.runs(), Options{Started: func(r schemas.Run) { started <- r.ID }})
		ended <- err
	}()
	id := <-started
	shell := w.runs()
	began := time.Now()
	if err := shell.Cancel(w.ctx(), id, "ben", "wrong filter"); err != nil {
		t.Fatal(err)
	}
	err := <-ended
	if took := time.Since(began); !errors.Is(err, ErrCancelled) || took > 40*time.Second {
		t.Errorf("%v after %s", err, took)
	}
	st, err := shell.Get(w.ctx(), id)
	if err != nil || st.State != schemas.RunCancelled || st.Counts.Written != rep.Settled || !strings.Contains(st.Error, "ben: wrong filter") {
		t.Errorf("%+v %v", st, err)
	}
	if err := shell.Cancel(w.ctx(), id, "ben", ""); !errors.Is(err, ErrFinished) {
		t.Errorf("%v", err)
	}
	// A cancelled run can be resumed; the old wish does not stop it again.
	job, err := ResumeJob(st.Run)
	if err != nil {
		t.Fatal(err)
	}
	job.Rate = 0
	if rep, err := w.store.Execute(w.ctx(), w.plan(job), w.runs(), Options{}); err != nil || rep.Run.State != schemas.RunDone {
		t.Errorf("%+v %v", rep, err)
	}
	if lives := w.lives(); len(lives) != 500 || len(w.letters(Filter{})) != 0 {
		t.Errorf("%d deliveries", len(lives))
	}
}
