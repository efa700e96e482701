package dlq

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/schemas"
)

// expire deletes the first n records of an endpoint's partition of dlq, as retention does.
func (w *world) expire(endpoint string, n int64) {
	w.Helper()
	var before kadm.Offsets
	before.AddOffset(w.names.DLQ(), partitionOf(endpoint), n, -1)
	if resp, err := w.admin().DeleteRecords(w.ctx(), before); err != nil || resp.Error() != nil {
		w.Fatal(err, resp.Error())
	}
}

// stopped executes a plan until some are settled and ends it then, as Ctrl-C does.
func (w *world) stopped(plan *Plan, settled int64) schemas.Run {
	w.Helper()
	ctx, stop := context.WithCancel(w.ctx())
	defer stop()
	rep, err := w.store.Execute(ctx, plan, w.runs(), Options{Progress: func(p Progress) {
		if p.Settled >= settled {
			stop()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		w.Fatalf("%+v %v", rep, err)
	}
	return rep.Run
}

// resumed is the plan of what is left of a run.
func (w *world) resumed(run schemas.Run) *Plan {
	w.Helper()
	job, err := ResumeJob(run)
	if err != nil {
		w.Fatal(err)
	}
	job.Rate = 0
	return w.plan(job)
}

func TestWhatTheTopicHasNoLongerIsCountedAndSaid(t *testing.T) {
	for _, kind := range []schemas.RunKind{schemas.RunReplay, schemas.RunDiscard} {
		t.Run(string(kind), func(t *testing.T) {
			w := newWorld(t)
			w.endpoint("ep_1")
			w.many(100, "ep_1")
			plan := w.plan(Job{Kind: kind})
			w.expire("ep_1", 40) // while the prompt stands
			rep, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{})
			if c := rep.Run.Counts; err != nil || c.Matched != 100 || c.Written != 60 || c.Skipped[SkipGone] != 40 || rep.Settled != 60 {
				t.Errorf("%+v %v", rep, err)
			}
		})
	}
}

func TestARunThatGoesOnSaysWhatWasWrittenAndWhatIsGone(t *testing.T) {
	for _, kind := range []schemas.RunKind{schemas.RunReplay, schemas.RunDiscard} {
		t.Run(string(kind), func(t *testing.T) {
			w := newWorld(t)
			w.endpoint("ep_1", "ep_2", "ep_3")
			w.many(300, "ep_3") // written first, and gone at the end
			w.many(300, "ep_1", "ep_2")
			run := w.stopped(w.plan(Job{Kind: kind, Rate: 20}), 10)
			w.expire("ep_3", 300)
			left := w.resumed(run)
			rep, err := w.store.Execute(w.ctx(), left, w.runs(), Options{})
			c := rep.Run.Counts
			if err != nil || c.Matched != 600 || c.Written+c.Skipped[SkipGone] != 600 || c.Skipped[SkipGone] == 0 || c.Written < run.Counts.Written {
				t.Errorf("%+v after %+v: %v", c, run.Counts, err)
			}
			if kind == schemas.RunReplay && c.Written != int64(len(w.lives())) {
				t.Errorf("%d are said to be written, %d are", c.Written, len(w.lives()))
			}
		})
	}
}

// Two shells plan to go on with a run. The first does some of it and is ended; then
// the second begins with what it had read before.
func TestAnOldPlanOfARunWritesNothingTwice(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(300, "ep_1")
	run := w.stopped(w.plan(Job{Rate: 20}), 5)
	first, second := w.resumed(run), w.resumed(run)
	first.Job.Rate = 20
	w.stopped(first, 5)
	rep, err := w.store.Execute(w.ctx(), second, w.runs(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for life, n := range w.lives() {
		if n != 1 {
			t.Errorf("%s was written %d times", life, n)
		}
	}
	if len(w.lives()) != 300 || len(w.letters(Filter{})) != 0 {
		t.Errorf("%d written, %d open: %+v", len(w.lives()), len(w.letters(Filter{})), rep.Run.Counts)
	}
}

func TestAnExportSaysHowManyLettersItHolds(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	w.many(100, "ep_1")
	sel, err := w.store.Select(w.ctx(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	w.expire("ep_1", 40)
	name := filepath.Join(t.TempDir(), "letters.jsonl")
	if end, err := w.store.ExportFile(w.ctx(), name, sel, Filter{}); err != nil || end.Letters != 60 || verifyFile(t, name) != end {
		t.Errorf("%+v %v", end, err)
	}
}
