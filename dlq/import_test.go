package dlq

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// step is something that was written of a delivery before the import.
type step struct {
	generation int
	settled    bool // by a tombstone
	former     bool // in the partition that the endpoint had before they were raised
}

func opened(generation int) step  { return step{generation: generation} }
func settled(generation int) step { return step{generation: generation, settled: true} }
func former(s step) step          { s.former = true; return s }

func TestAnImportWritesEveryLetterUnderTheNewestGenerationThatIsKnown(t *testing.T) {
	cases := map[string]struct {
		file  []int // generations
		topic []step
		want  []int // open afterwards
		there int   // reported as
	}{
		"nothing is known":                         {[]int{0}, nil, []int{0}, 0},
		"nothing is known of a later life":         {[]int{3}, nil, []int{3}, 0},
		"it is open":                               {[]int{0}, []step{opened(0)}, []int{0}, 1},
		"it was discarded":                         {[]int{0}, []step{opened(0), settled(0)}, []int{0}, 0},
		"it was brought back":                      {[]int{0}, []step{opened(0), settled(0), opened(0)}, []int{0}, 1},
		"a later life was discarded":               {[]int{0}, []step{opened(0), settled(0), opened(1), settled(1)}, []int{1}, 0},
		"of a later life the tombstone is left":    {[]int{0}, []step{settled(4)}, []int{4}, 0},
		"a later life is open":                     {[]int{0}, []step{opened(0), settled(0), opened(1)}, []int{1}, 1},
		"a later life was brought back":            {[]int{0}, []step{opened(1), settled(1), opened(1)}, []int{1}, 1},
		"its tombstone came after the later life":  {[]int{0}, []step{opened(0), opened(1), settled(0)}, []int{1}, 1},
		"a run was cut off, and the rest is gone":  {[]int{0}, []step{opened(0), opened(1), settled(1)}, []int{0, 1}, 0},
		"the file knows a later life":              {[]int{2}, []step{opened(0), settled(0)}, []int{2}, 0},
		"the file knows a later life of one there": {[]int{2}, []step{opened(0)}, []int{0, 2}, 0},
		"two lives are in the file":                {[]int{0, 2}, nil, []int{2}, 1},
		"two in the file, a later one is settled":  {[]int{0, 2}, []step{settled(3)}, []int{3}, 1},
		"two in the file, the first is open":       {[]int{0, 2}, []step{opened(0)}, []int{0, 2}, 1},
		"a later life died before a raise":         {[]int{0}, []step{former(opened(1)), former(settled(1))}, []int{1}, 0},
		"it is open, and elsewhere settled":        {[]int{0}, []step{former(opened(0)), former(settled(0)), opened(0)}, []int{0}, 1},
		"it is open elsewhere":                     {[]int{0}, []step{former(opened(0)), opened(0), settled(0)}, []int{0}, 1},
		"it is settled here and elsewhere":         {[]int{0}, []step{former(opened(0)), former(settled(0)), opened(0), settled(0)}, []int{0}, 0},
	}
	from, w := newWorld(t), newWorld(t)
	w.raise()
	lives := map[string]schemas.Delivery{}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		d := from.delivery(moved(0))
		lives[name] = d
		for _, generation := range cases[name].file {
			d.Generation = generation
			from.die(d, schemas.ReasonExhausted, time.Now())
		}
		for _, s := range cases[name].topic {
			w.step(d, s)
		}
	}
	from.flush()
	w.flush()
	file := filepath.Join(t.TempDir(), "letters.jsonl")
	from.export(file)
	plan, _ := w.planImport(file)
	expected, err := w.store.There(w.ctx(), plan.source)
	if err != nil {
		t.Fatal(err)
	}
	rep := w.importFile(file)
	found, there := map[string][]int{}, 0
	for _, e := range w.letters(Filter{}) {
		found[e.ID()] = append(found[e.ID()], e.Generation)
	}
	for name, c := range cases {
		d := lives[name]
		have := slices.Sorted(slices.Values(found[d.ID()]))
		if !slices.Equal(have, c.want) {
			t.Errorf("%s: the lives %v are open, want %v", name, have, c.want)
		}
		there += c.there
	}
	if n := rep.Run.Counts.Skipped[SkipThere]; n != int64(there) || expected != n {
		t.Errorf("%+v, want %d that are there; %d were expected", rep.Run.Counts, there, expected)
	}
	before := len(w.read(w.names.DLQ()))
	if rep = w.importFile(file); rep.Run.Counts.Written != 0 || len(w.read(w.names.DLQ())) != before {
		t.Errorf("the second import wrote %d letters", rep.Run.Counts.Written)
	}
}

func (w *world) step(d schemas.Delivery, s step) {
	d.Generation = s.generation
	l := schemas.NewLetter(d, schemas.ReasonExhausted, time.Now().UTC().Truncate(time.Millisecond))
	rec := l.Record()
	m := kafka.Message{Topic: w.names.DLQ(), Partition: kafka.Partition([]byte(d.EndpointID), raisedTo), Key: rec.Key, Value: rec.Value, Headers: rec.Headers}
	if s.former {
		m.Partition = partitionOf(d.EndpointID)
	}
	if s.settled {
		m.Value, m.Headers = nil, nil
	}
	w.writer.Write(m, nil)
}

// A letter that is brought back under another generation is the same in all else.
func TestALetterThatComesBackAsALaterLifeKeepsItsPayloadAndItsHeaders(t *testing.T) {
	from, w := newWorld(t), newWorld(t)
	oddLetters(from, 10_000)
	file := filepath.Join(t.TempDir(), "letters.jsonl")
	from.export(file)
	for _, l := range from.written {
		later := l.Letter
		later.Generation = 1
		w.bury(&letter{Letter: later})
	}
	w.flush()
	w.importFile(file)
	have := w.records()
	if rep := w.importFile(file); rep.Run.Counts.Written != 0 {
		t.Errorf("%d of them were not known again", rep.Run.Counts.Written)
	}
	for key, rec := range from.records() {
		id, _, err := schemas.ParseLetterKey(key)
		if err != nil {
			t.Fatal(err)
		}
		back := have[schemas.LetterKey(id, 1)]
		headers := slices.DeleteFunc(slices.Clone(back.Headers), func(h schemas.Header) bool { return h.Key == schemas.HeaderGeneration })
		if header(back.Headers, schemas.HeaderGeneration) != "1" {
			t.Errorf("%s: %v", key, back.Headers)
		}
		rec.Headers = slices.DeleteFunc(slices.Clone(rec.Headers), func(h schemas.Header) bool { return h.Key == schemas.HeaderGeneration })
		back.Key, back.Headers = rec.Key, headers
		if !sameRecord(rec, back) {
			t.Errorf("%s: %v became %v", key, rec.Headers, headers)
		}
	}
	if len(have) != len(from.written) {
		t.Errorf("%d letters, not %d", len(have), len(from.written))
	}
}

// Killed anywhere and begun again, an import leaves each letter once.
func TestAnImportThatWasCutOffIsBegunAgain(t *testing.T) {
	w := newWorld(t)
	w.many(200, "ep_1", "ep_2")
	file := filepath.Join(t.TempDir(), "letters.jsonl")
	w.execute(Job{Kind: schemas.RunDiscard, Why: "test", Export: file}, Options{})
	plan, source := w.planImport(file)
	plan.Job.Rate = 100
	ctx, cancel := context.WithCancel(w.ctx())
	defer cancel()
	rep, err := w.store.Execute(ctx, plan, w.runs(), Options{Source: source, Progress: func(p Progress) {
		if p.Settled > 20 {
			cancel()
		}
	}})
	if err == nil {
		t.Fatal("it was not cut off")
	}
	first := rep.Run.Counts.Written
	rep = w.importFile(file)
	if counts := rep.Run.Counts; counts.Skipped[SkipThere] < first || counts.Written+counts.Skipped[SkipThere] != 200 || len(w.letters(Filter{})) != 200 {
		t.Errorf("%d were there, then %+v", first, counts)
	}
	if n := len(w.read(w.names.DLQ())); n != 600 {
		t.Errorf("%d records: 200 letters, their tombstones, and 200 letters again", n)
	}
}

// A letter's later life that a discard takes out meanwhile is not seen by the import.
func TestAnImportAndADiscardAreNotAtWorkAtOnce(t *testing.T) {
	run := func(kind schemas.RunKind, endpoints ...string) *schemas.Run {
		return &schemas.Run{Kind: kind, Endpoints: endpoints}
	}
	for _, c := range []struct {
		a, b *schemas.Run
		want bool
	}{
		{run(schemas.RunImport), run(schemas.RunDiscard), true},
		{run(schemas.RunImport), run(schemas.RunDiscard, "ep_1"), true},
		{run(schemas.RunImport), run(schemas.RunReplay), false},
		{run(schemas.RunImport), run(schemas.RunImport), false},
		{run(schemas.RunReplay), run(schemas.RunDiscard), true},
		{run(schemas.RunReplay, "ep_1"), run(schemas.RunDiscard, "ep_2"), false},
	} {
		if disturb(c.a, c.b) != c.want || disturb(c.b, c.a) != c.want {
			t.Errorf("a %s and a %s: want %t", c.a.Kind, c.b.Kind, c.want)
		}
	}
}

func TestAFileThatIsAnotherOneWhenItIsReadAgainIsRefused(t *testing.T) {
	w := newWorld(t)
	w.many(3, "ep_1")
	dir := t.TempDir()
	first, other := filepath.Join(dir, "first"), filepath.Join(dir, "other")
	w.execute(Job{Kind: schemas.RunDiscard, Why: "test", Export: first}, Options{})
	w.many(3, "ep_1")
	w.execute(Job{Kind: schemas.RunDiscard, Why: "test", Export: other}, Options{})
	plan, _ := w.planImport(first)
	_, source := w.planImport(other)
	if _, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{Source: source}); err == nil || !strings.Contains(err.Error(), "when it was checked") {
		t.Error(err)
	}
	if n := len(w.letters(Filter{})); n != 0 {
		t.Errorf("%d letters of another file", n)
	}
}

// export writes all letters that are open.
func (w *world) export(name string) {
	w.Helper()
	sel, err := w.store.Select(w.ctx(), Filter{})
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.store.ExportFile(w.ctx(), name, sel, Filter{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) planImport(name string) (*Plan, *os.File) {
	w.Helper()
	file, err := os.Open(name)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = file.Close() })
	source, err := Verify(file)
	if err != nil {
		w.Fatal(err)
	}
	return PlanImport("anna", "", name, source), file
}

// importFile imports it, and looks at how its progress ends.
func (w *world) importFile(name string) Report {
	w.Helper()
	plan, source := w.planImport(name)
	var last Progress
	rep, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{Source: source, Progress: func(p Progress) { last = p }})
	if err != nil {
		w.Fatal(err)
	}
	if counts := rep.Run.Counts; last.Settled+last.Skipped != counts.Matched || last.Settled != counts.Written || last.Total != counts.Matched {
		w.Errorf("an import of %+v ends at %+v", counts, last)
	}
	return rep
}
