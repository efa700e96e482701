package dlq

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/schemas"
)

// oddLetters writes letters with payloads and headers of all kinds, the largest payload
// of that size.
func oddLetters(w *world, largest int) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for _, payload := range [][]byte{[]byte(`{"a": 1.00, "b":"\u2028"}`), noise(r, 1000), {}, noise(r, largest), []byte("\xff\xfe\x00"), []byte(strings.Repeat("x", 100))} {
		d := w.delivery("ep_1")
		d.Payload = payload
		d.Event.Subject = "ünï\u2028<&>"
		d.Extra = []schemas.Header{{Key: "x-bin", Value: noise(r, 40)}, {Key: "x-null"}, {Key: "x-empty", Value: []byte{}}, {Key: "x-bin", Value: []byte("twice")}, {Key: "x-\xff"}}
		w.die(d, schemas.ReasonExhausted, time.Now())
	}
	null := w.delivery("ep_1")
	null.Payload = nil
	w.die(null, schemas.ReasonMalformed, time.Now())
	w.die(w.delivery(""), schemas.ReasonMalformed, time.Now())
	w.flush()
}

// records are the letters of the topic as they stand there, by key, the newest each.
func (w *world) records() map[string]schemas.Record {
	out := map[string]schemas.Record{}
	for _, rec := range w.read(w.names.DLQ()) {
		if rec.Value == nil {
			delete(out, string(rec.Key))
			continue
		}
		out[string(rec.Key)] = rec
	}
	return out
}

func TestDiscardExportsFirstAndImportBringsEverythingBackByteForByte(t *testing.T) {
	for _, name := range []string{"letters.jsonl", "letters.jsonl.gz"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.endpoint("ep_1")
			oddLetters(w, 1_000_000)
			before := w.records()
			file := filepath.Join(t.TempDir(), name)
			rep := w.execute(Job{Kind: schemas.RunDiscard, Why: "test", Export: file}, Options{})
			if left := w.records(); len(left) != 0 || rep.Settled != 8 {
				t.Fatalf("%d are left, %d settled", len(left), rep.Settled)
			}
			w.importFile(file)
			after := w.records()
			if len(after) != len(before) {
				t.Fatalf("%d letters, were %d", len(after), len(before))
			}
			for key, rec := range before {
				if !sameRecord(rec, after[key]) || rec.Partition != after[key].Partition {
					t.Errorf("%s: %v became %v", key, rec.Headers, after[key].Headers)
				}
			}
			w.execute(Job{}, Options{}) // and what is replayed has the producer's bytes
			payloads := map[string][]byte{}
			for _, d := range w.deliveries() {
				payloads[d.Event.ID] = d.Payload
			}
			for _, l := range w.written {
				if l.Mark == "" && l.EndpointID != "" && !bytes.Equal(payloads[l.Event.ID], l.Payload) {
					t.Errorf("the payload of %s has changed", l.ID())
				}
			}
		})
	}
}

func TestADamagedExportIsRefused(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	oddLetters(w, 100_000)
	sel, err := w.store.Select(w.ctx(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var whole bytes.Buffer
	if end, err := w.store.Export(w.ctx(), &whole, sel, Filter{}); err != nil || !end.Complete || end.Letters != 8 {
		t.Fatalf("%+v %v", end, err)
	}
	text := whole.Bytes()
	lines := bytes.SplitAfter(text, []byte("\n"))
	cases := map[string][]byte{
		"cut":                    text[:len(text)/2],
		"without its end":        bytes.Join(lines[:len(lines)-2], nil),
		"a byte changed":         bytes.Replace(slices.Clone(text), []byte("exhausted"), []byte("exhausteD"), 1),
		"a line left out":        bytes.Join(append(slices.Clone(lines[:2]), lines[3:]...), nil),
		"a line twice":           bytes.Join(append(slices.Clone(lines[:2]), lines[1:]...), nil),
		"said to be ended early": bytes.Replace(slices.Clone(text), []byte(`"complete":true`), []byte(`"complete":false`), 1),
		"of a later version":     bytes.Replace(slices.Clone(text), []byte(`"version":2`), []byte(`"version":3`), 1),
		"its end is no end":      bytes.Replace(slices.Clone(text), []byte(`"letters":8`), []byte(`"letters":""`), 1),
		"something behind":       append(slices.Clone(text), "{}\n"...),
		"empty":                  {},
		"no export":              []byte("hello\n"),
		"gzip that is cut":       gzipped(t, text)[:100],
		"gzip of a cut export":   gzipped(t, text[:len(text)-10]),
	}
	for name, bad := range cases {
		if _, err := Verify(bytes.NewReader(bad)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Verify(bytes.NewReader(gzipped(t, text))); err != nil {
		t.Error(err)
	}
}

// Its sum was of the lines before the last one.
func TestAnExportOfTheFirstVersionIsReadStill(t *testing.T) {
	lines := `{"line":"export","version":1,"topic":"webhooks.dlq","at":"2026-11-30T12:00:00Z","filter":{}}` + "\n"
	sum := sha256.Sum256([]byte(lines))
	end, err := Verify(strings.NewReader(fmt.Sprintf(`%s{"line":"end","letters":0,"complete":true,"sha256":"%x"}`+"\n", lines, sum)))
	if err != nil || !end.Complete {
		t.Errorf("%+v %v", end, err)
	}
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// stopping ends a context after some bytes were written.
type stopping struct {
	io.Writer
	left int
	stop func()
}

func (s *stopping) Write(p []byte) (int, error) {
	if s.left -= len(p); s.left < 0 {
		s.stop()
	}
	return s.Writer.Write(p)
}

func TestAnExportThatIsEndedEarlySaysSo(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	oddLetters(w, 1_000_000)
	sel, err := w.store.Select(w.ctx(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx())
	var part bytes.Buffer
	if _, err := w.store.Export(ctx, &stopping{&part, 300_000, cancel}, sel, Filter{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if end, err := Verify(&part); err != nil || end.Complete {
		t.Errorf("%+v %v", end, err)
	}
	cancel()
	name := filepath.Join(t.TempDir(), "x.jsonl")
	if _, err := w.store.ExportFile(ctx, name, sel, Filter{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if left, err := filepath.Glob(name + "*"); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestADiscardThatCannotExportDiscardsNothing(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1")
	oddLetters(w, 100_000)
	name := filepath.Join(t.TempDir(), "x.jsonl")
	if err := os.WriteFile(name, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	rep, err := w.store.Execute(w.ctx(), w.plan(Job{Kind: schemas.RunDiscard, Export: name}), w.runs(), Options{})
	if err == nil || rep.Run.State != schemas.RunFailed || len(w.records()) != 8 {
		t.Errorf("%+v %v", rep, err)
	}
	if have, err := os.ReadFile(name); err != nil || string(have) != "mine" {
		t.Errorf("%q %v", have, err)
	}
}

func TestADiscardThatIsKilledAndResumedKeepsItsExport(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2")
	w.many(500, "ep_1", "ep_2")
	name := filepath.Join(t.TempDir(), "x.jsonl.gz")
	id, _ := w.kill(w.plan(Job{Kind: schemas.RunDiscard, Export: name, Rate: 300}), 100)
	w.age(id)
	st, err := w.runs().Get(w.ctx(), id)
	if err != nil {
		t.Fatal(err)
	}
	job, err := ResumeJob(st.Run)
	if err != nil {
		t.Fatal(err)
	}
	job.Rate = 0
	plan := w.plan(job)
	if plan.Write >= 500 || plan.Write == 0 {
		t.Fatalf("%d are left", plan.Write)
	}
	// Somebody has put another whole export in its place meanwhile.
	if err := os.Rename(name, name+".first"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.ExportFile(w.ctx(), name, &Selection{}, Filter{}); err != nil {
		t.Fatal(err)
	}
	rep, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{})
	if err != nil || rep.Run.Counts.Written != 500 {
		t.Fatalf("%+v %v", rep, err)
	}
	if !strings.Contains(rep.Exported, "x.resumed-") {
		t.Fatalf("%+v", rep)
	}
	for file, letters := range map[string]int64{name + ".first": 500, name: 0, rep.Exported: plan.Write} {
		if end := verifyFile(t, file); end.Letters != letters {
			t.Errorf("%s holds %d letters, want %d", file, end.Letters, letters)
		}
	}
	if left := len(w.records()); left != 0 {
		t.Errorf("%d left", left)
	}
}

// Its file could not be written where it was to be: the way on is to another place. And
// once nothing is left, nothing is to be exported.
func TestADiscardThatGoesOnExportsWhatIsLeftToAnotherPlace(t *testing.T) {
	w := newWorld(t)
	w.many(5, "ep_1")
	dir := t.TempDir()
	failed, err := w.store.Execute(w.ctx(), w.plan(Job{Kind: schemas.RunDiscard, Export: filepath.Join(dir, "none", "x.jsonl")}), w.runs(), Options{})
	if err == nil || len(w.records()) != 5 {
		t.Fatalf("%+v %v", failed, err)
	}
	w.many(1, "ep_1") // after its snapshot
	other := w.resumed(failed.Run)
	other.Job.Export = filepath.Join(dir, "y.jsonl")
	rep, err := w.store.Execute(w.ctx(), other, w.runs(), Options{})
	if end := verifyFile(t, other.Job.Export); err != nil || end.Letters != 5 || rep.Exported != other.Job.Export || len(w.records()) != 1 {
		t.Fatalf("%+v %v", rep, err)
	}
	again, err := w.store.Execute(w.ctx(), w.plan(Job{Kind: schemas.RunDiscard, Export: filepath.Join(dir, "none", "x.jsonl")}), w.runs(), Options{})
	if err == nil {
		t.Fatalf("%+v", again)
	}
	w.execute(Job{Kind: schemas.RunDiscard}, Options{})
	if rep, err = w.store.Execute(w.ctx(), w.resumed(again.Run), w.runs(), Options{}); err != nil || rep.Exported != "" || rep.Run.State != schemas.RunDone {
		t.Errorf("%+v %v", rep, err)
	}
}

func verifyFile(t *testing.T, name string) ExportEnd {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	end, err := Verify(file)
	if err != nil {
		t.Fatal(err)
	}
	return end.ExportEnd
}

func TestAnExportNeverTakesAnothersName(t *testing.T) {
	name := filepath.Join(t.TempDir(), "letters.jsonl")
	write := func(text string) func(io.Writer) error {
		return func(f io.Writer) error {
			_, err := io.WriteString(f, text)
			return err
		}
	}
	err := writeFile(name, func(f io.Writer) error {
		if err := write("the first half")(f); err != nil {
			return err
		}
		if err := writeFile(name, write("of another shell")); err != nil { // it is faster
			t.Error(err)
		}
		return write("the second half")(f)
	})
	if err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Error(err)
	}
	have, err := os.ReadFile(name)
	if err != nil || string(have) != "of another shell" {
		t.Errorf("%q %v", have, err)
	}
	if files, err := filepath.Glob(name + "*"); err != nil || len(files) != 1 {
		t.Errorf("%v %v", files, err)
	}
}
