package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestARunnerThatWasFrozenDoesNotGoOnBesideItsSuccessor(t *testing.T) {
	t.Parallel() // it waits, until the next beat
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(400, "ep_1")
	started, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		_, err := w.store.Execute(w.ctx(), w.plan(Job{Rate: 10}), w.runs(), Options{Started: func(r schemas.Run) { started <- r.ID }})
		ended <- err
	}()
	id := <-started
	other := w.open()
	runs := w.runs()
	st, err := runs.Get(w.ctx(), id)
	if err != nil || !st.Live {
		t.Fatalf("%+v %v", st, err)
	}
	job, err := ResumeJob(st.Run)
	if err != nil {
		t.Fatal(err)
	}
	job.Kind = schemas.RunReplay
	plan, err := other.Plan(w.ctx(), job)
	if err != nil {
		t.Fatal(err)
	}
	plan.Job.Rate = 0
	if _, err := other.Execute(w.ctx(), plan, runs, Options{}); !errors.Is(err, ErrLive) {
		t.Errorf("a live run was taken over: %v", err)
	}
	var rep Report
	for err = ErrLive; errors.Is(err, ErrLive); { // unless a beat of the other comes in between
		w.age(id) // it was frozen for a minute
		rep, err = other.Execute(w.ctx(), plan, runs, Options{})
	}
	if err != nil || rep.Run.State != schemas.RunDone {
		t.Errorf("%+v %v", rep, err)
	}
	if err := <-ended; !errors.Is(err, ErrTaken) {
		t.Errorf("the frozen one ended with %v", err)
	}
	if st, err := runs.Get(w.ctx(), id); err != nil || st.State != schemas.RunDone {
		t.Errorf("%+v %v", st, err)
	}
}

func TestRunsThatShareNoEndpointRunAtOnce(t *testing.T) {
	w := newWorld(t)
	runs := w.runs()
	first := schemas.Run{ID: "a", Kind: schemas.RunReplay, Endpoints: []string{"ep_1", "ep_2"}, Filter: json.RawMessage(`{}`)}
	if err := runs.claim(w.ctx(), &first, false); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind      schemas.RunKind
		endpoints []string
		force     bool
		busy      bool
	}{
		{schemas.RunReplay, []string{"ep_3"}, false, false},
		{schemas.RunReplay, []string{"ep_2", "ep_3"}, false, true},
		{schemas.RunDiscard, []string{"ep_2"}, false, true},
		{schemas.RunDiscard, nil, false, true},
		{schemas.RunReplay, nil, true, false},
		{schemas.RunImport, nil, false, false},
	} {
		run := schemas.Run{ID: newRunID(time.Now()), Kind: c.kind, Endpoints: c.endpoints, Filter: json.RawMessage(`{}`)}
		err := w.runs().claim(w.ctx(), &run, c.force)
		var busy *BusyError
		if errors.As(err, &busy) != c.busy || (err != nil) != c.busy {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil {
			run.State = schemas.RunDone
			w.retire(run)
		}
	}
	discard := schemas.Run{ID: "b", Kind: schemas.RunDiscard, Endpoints: []string{"ep_4"}, Filter: json.RawMessage(`{}`)}
	if err := runs.claim(w.ctx(), &discard, false); err != nil {
		t.Fatal(err)
	}
	for _, force := range []bool{false, true} {
		run := schemas.Run{ID: newRunID(time.Now()), Kind: schemas.RunImport, Filter: json.RawMessage(`{}`)}
		if err := w.runs().claim(w.ctx(), &run, force); (err == nil) != force {
			t.Errorf("an import beside a discard, which would take its letters out again, forced %t: %v", force, err)
		}
	}
	if list, err := runs.List(w.ctx()); err != nil || len(list) != 6 || !slices.IsSortedFunc(list, func(a, b Status) int { return b.Started.Compare(a.Started) }) {
		t.Errorf("%d %v", len(list), err)
	}
}

// retire ends a run that was claimed by whomever.
func (w *world) retire(run schemas.Run) {
	w.Helper()
	r := w.runs()
	r.me = run.Runner
	if err := r.beat(w.ctx(), &run); err != nil {
		w.Fatal(err)
	}
}

func TestEveryStepOfARunIsAudited(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(3, "ep_1")
	rep := w.execute(Job{Who: "anna", Why: "mended"}, Options{})
	var actions []string
	for _, rec := range w.read(w.names.Audit()) {
		var a schemas.Audit
		if err := json.Unmarshal(rec.Value, &a); err != nil || a.Subject != "run/"+rep.Run.ID || a.Who != "anna" || a.Door != "cli" {
			t.Errorf("%+v %v", a, err)
		}
		actions = append(actions, a.Action)
	}
	if !slices.Equal(actions, []string{"start", "done"}) {
		t.Error(actions)
	}
}

func TestAnInterruptedRunCanBeCancelledByWhoeverFindsIt(t *testing.T) {
	w := newWorld(t)
	run := schemas.Run{ID: "a", Kind: schemas.RunReplay, Filter: json.RawMessage(`{}`)}
	if err := w.runs().claim(w.ctx(), &run, false); err != nil {
		t.Fatal(err)
	}
	w.age("a")
	runs := w.runs()
	if err := runs.Cancel(w.ctx(), "a", "ben", "not needed"); err != nil {
		t.Fatal(err)
	}
	if st, err := runs.Get(w.ctx(), "a"); err != nil || st.State != schemas.RunCancelled || !strings.Contains(st.Error, "by ben: not needed") {
		t.Errorf("%+v %v", st, err)
	}
}

func TestShowJoinsAllDeaths(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	d := w.delivery("ep_1")
	first := w.die(d, schemas.ReasonExhausted, time.Now().Add(-time.Hour))
	w.flush()
	rep := w.execute(Job{}, Options{})
	again := w.deliveries()[0]
	again.LastStatus = 404
	w.die(again, schemas.ReasonRejected, time.Now())
	w.flush()
	for _, id := range []string{first.ID(), first.MessageID(), d.Event.ID, first.Key()} {
		deaths, err := w.store.Show(w.ctx(), id)
		if err != nil || len(deaths) != 2 || deaths[0].Settled != "replayed" || deaths[0].Run != rep.Run.ID || deaths[1].Settled != "" ||
			deaths[1].LastStatus != 404 || string(deaths[1].Payload) != string(d.Payload) {
			t.Errorf("%s: %+v %v", id, deaths, err)
		}
	}
	if _, err := w.store.Show(w.ctx(), "nobody"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestShowTakesTheLastWordAboutADeath(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	l := w.die(w.delivery("ep_1"), schemas.ReasonExhausted, time.Now())
	for _, last := range []struct {
		word    func(*letter)
		settled string
	}{{w.bury, "settled"}, {w.put, ""}, {w.put, ""}, {w.bury, "settled"}} {
		last.word(l)
		w.flush()
		if deaths, err := w.store.Show(w.ctx(), l.ID()); err != nil || len(deaths) != 1 || deaths[0].Settled != last.settled || deaths[0].DiedAt != l.DiedAt {
			t.Errorf("%+v %v, want settled %q", deaths, err, last.settled)
		}
	}
}

// What cannot write must not keep others from the same endpoints for half a minute.
func TestARunThatCannotWriteIsNotClaimed(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(3, "ep_1")
	broken := w.open()
	wrong := errors.New("no certificate")
	broken.newWriter = func() (writer, error) { return nil, wrong }
	plan := w.plan(Job{})
	runs := w.runs()
	if rep, err := broken.Execute(w.ctx(), plan, runs, Options{}); !errors.Is(err, wrong) || rep.Run.ID != "" {
		t.Errorf("%+v %v", rep, err)
	}
	if list, err := runs.List(w.ctx()); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
	if rep, err := w.store.Execute(w.ctx(), plan, runs, Options{}); err != nil || rep.Settled != 3 {
		t.Errorf("%+v %v", rep, err)
	}
}

// A limit selects the newest; what is older must not move up when some of them are settled.
func TestARunWithALimitGoesOnWithWhatItSelectedFirst(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2", "ep_3")
	w.many(300, "ep_1", "ep_2", "ep_3")
	plan := w.plan(Job{Filter: Filter{Limit: 150}})
	offsets := map[int32]int64{} // of the next letter of a partition
	selected := map[*letter]bool{}
	for _, l := range w.written {
		p := partitionOf(l.EndpointID)
		selected[l] = slices.Contains(plan.offsets[p], offsets[p])
		offsets[p]++
	}
	id, _ := w.kill(plan, 100)
	w.age(id)
	for _, l := range w.written[290:] {
		w.bury(l) // by somebody else, which makes no room for others either
	}
	w.flush()
	st, err := w.runs().Get(w.ctx(), id)
	if err != nil {
		t.Fatal(err)
	}
	job, err := ResumeJob(st.Run)
	if err != nil {
		t.Fatal(err)
	}
	w.execute(job, Options{})
	lives := w.lives()
	for i, l := range w.written {
		replayed := lives[schemas.LetterKey(l.ID(), l.Generation+1)] > 0
		if replayed != selected[l] && !(selected[l] && l.settled) {
			t.Errorf("letter %d: selected %t, replayed %t", i, selected[l], replayed)
		}
	}
}

// What a colleague settled was not written by the run, however often that was ended.
func TestARunThatGoesOnCountsWhatOthersSettledAsSkipped(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(10, "ep_1")
	plan := w.plan(Job{})
	for _, l := range w.written[:3] {
		w.bury(l) // while the prompt stood
	}
	w.flush()
	ctx, end := context.WithCancel(w.ctx())
	undo := w.wrapWriter(w.store, func(inner writer) writer { return &interrupted{writer: inner, end: end} })
	rep, err := w.store.Execute(ctx, plan, w.runs(), Options{})
	undo()
	if !errors.Is(err, context.Canceled) || rep.Run.Counts.Written != 1 || rep.Run.Counts.Skipped[SkipSettled] != 3 {
		t.Fatalf("%+v %v", rep, err)
	}
	job, err := ResumeJob(rep.Run)
	if err != nil {
		t.Fatal(err)
	}
	if counts := w.execute(job, Options{}).Run.Counts; counts.Written != 7 || counts.Skipped[SkipSettled] != 3 {
		t.Errorf("%+v", counts)
	}
}

func TestAWishToCancelIsHeardWithinTwoSeconds(t *testing.T) {
	const reading = 900 * time.Millisecond // of the runs topic, on a bad day
	for _, after := range []time.Duration{0, time.Millisecond, time.Second / 2, time.Second, 1300 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancelCause(t.Context())
			wish := time.Now().Add(after)
			r := &runner{stop: stop}
			go r.watches(ctx, func(context.Context) (string, bool, error) {
				asked := time.Now()
				time.Sleep(reading)
				return "ben", !asked.Before(wish), nil
			})
			<-ctx.Done()
			if took := time.Since(wish); !errors.Is(context.Cause(ctx), ErrCancelled) || took > 2*time.Second {
				t.Errorf("wished after %s: %v after %s", after, context.Cause(ctx), took)
			}
		})
	}
}

func TestAResumedRunRecordsItsNewRateAndWhoResumedIt(t *testing.T) {
	w := newWorld(t)
	runs := w.runs()
	run := schemas.Run{ID: "run-x", Kind: schemas.RunReplay, Rate: 5, Auto: true, Filter: []byte("{}"), Snapshot: map[int32]int64{}}
	if err := runs.claim(w.ctx(), &run, false); err != nil {
		t.Fatal(err)
	}
	run.State = schemas.RunFailed
	if err := runs.beat(w.ctx(), &run); err != nil {
		t.Fatal(err)
	}
	job, err := ResumeJob(run)
	if err != nil {
		t.Fatal(err)
	}
	job.Rate, job.Auto, job.Who = 300, false, "ben"
	if _, err := runs.reclaim(w.ctx(), &job); err != nil {
		t.Fatal(err)
	}
	if st, err := runs.Get(w.ctx(), "run-x"); err != nil || st.Rate != 300 || st.Auto || st.ResumedBy != "ben" || st.ResumedAt.IsZero() {
		t.Errorf("%+v %v", st, err)
	}
}

// --force is not the way on for who did not mean all endpoints.
func TestARefusalSaysWhichEndpointsAreClaimed(t *testing.T) {
	one, many := []string{"ep_1"}, []string{"ep_1", "ep_2", "ep_3", "ep_4", "ep_5"}
	for _, c := range []struct {
		theirs, mine []string
		want         string
	}{
		{one, one, "at work on the same endpoints; wait"},
		{one, nil, "at work on ep_1, and a run without --endpoint claims all endpoints; name those that are meant by --endpoint, wait"},
		{many, nil, "at work on ep_1, ep_2, ep_3 and 2 endpoints more, and a run"},
		{nil, one, "at work on all endpoints; wait"},
	} {
		if err := (&BusyError{Run: schemas.Run{Endpoints: c.theirs}, Endpoints: c.mine}); !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, want %s", err, c.want)
		}
	}
	err := &BusyError{Run: schemas.Run{Kind: schemas.RunDiscard, Endpoints: many}, Kind: schemas.RunImport} // of a file with others' letters
	if want := "at work on ep_1, ep_2, ep_3 and 2 endpoints more, and an import and a discard are not at work at once; wait"; !strings.Contains(err.Error(), want) {
		t.Errorf("%s, want %s", err, want)
	}
}

// It counts for nothing that others have settled, and what was replayed stays replayed.
func TestADiscardPassesOverWhatOthersSettle(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(10, "ep_1")
	plan := w.plan(Job{Kind: schemas.RunDiscard})
	for _, l := range w.written[:3] {
		w.bury(l)
	}
	w.flush()
	before := len(w.read(w.names.DLQ()))
	rep, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{})
	if c := rep.Run.Counts; err != nil || c.Written != 7 || c.Skipped[SkipSettled] != 3 {
		t.Errorf("%+v %v", rep, err)
	}
	if n := len(w.read(w.names.DLQ())) - before; n != 7 {
		t.Errorf("%d tombstones", n)
	}
}

func TestARunCanBeResumedWhenItWasSaidThatItCould(t *testing.T) {
	now := time.Now()
	for _, age := range []time.Duration{0, 1400 * time.Millisecond, 29600 * time.Millisecond} {
		run := schemas.Run{ID: "run-x", State: schemas.RunRunning, Updated: now.Add(-age)}
		err := MayResume(&run, now)
		_, text, _ := strings.Cut(fmt.Sprint(err), "it can be resumed in ")
		wait, perr := time.ParseDuration(text)
		if !errors.Is(err, ErrLive) || perr != nil || MayResume(&run, now.Add(wait)) != nil || wait > schemas.RunStale {
			t.Errorf("after %s: %v", age, err)
		}
	}
}

// At a low rate a letter's turn comes hours after the snapshot.
func TestWhatOthersSettleIsSeenWhileARunIsAtWork(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(3, "ep_1")
	r := &runner{store: w.store, plan: w.plan(Job{})}
	stop, err := r.beside(w.ctx())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	gone := func() (n int) {
		for _, l := range w.written {
			if r.isGone(&Entry{rec: schemas.Record{Key: []byte(schemas.LetterKey(l.ID(), l.Generation))}}) {
				n++
			}
		}
		return n
	}
	if n := gone(); n != 0 {
		t.Errorf("%d are gone, and nobody has settled any", n)
	}
	w.bury(w.written[1])
	w.flush()
	waitFor(t, func() bool { return gone() == 1 })
}
