package flowtest

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// The letters died, were discarded and brought back, died again and were discarded again;
// then the file of the first time is imported. Its lives were followed by ones that
// the owner remembers as POSTed: what is replayed must be none of those.
func TestAnOlderExportBringsBackWhatDiedAgainAndWasDiscardedAgain(t *testing.T) {
	const n = 8
	f := newFlow(t)
	f.endpoint("ep", preset("proofledger"))
	f.receiver.Script("/ep", testkit.Status(422)) // which opens no breaker
	f.ready(f.start())
	f.send(n, 100, "ep")
	s := f.store()
	discard := func(generation int) (name string) {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, func() string {
			letters := f.open(s, dlq.Filter{})
			for key, e := range letters {
				if e.Generation != generation {
					return key + " is open"
				}
			}
			if len(letters) != n {
				return fmt.Sprintf("%d letters, not %d", len(letters), n)
			}
			return ""
		})
		name = filepath.Join(t.TempDir(), "letters.jsonl.gz")
		plan, err := s.Plan(t.Context(), dlq.Job{Kind: schemas.RunDiscard, Export: name, Why: "test"})
		must(t, err)
		_, err = s.Execute(t.Context(), plan, f.runs(), dlq.Options{})
		must(t, err)
		return name
	}
	older := discard(0)
	f.importFile(s, older)
	f.replay(s, dlq.Job{}, dlq.Options{})
	discard(1)

	before := f.receiver.Log.Len()
	f.receiver.Script("/ep", testkit.Status(200))
	f.importFile(s, older)
	rep := f.replay(s, dlq.Job{}, dlq.Options{})
	if rep.Settled != n {
		t.Errorf("%d letters were replayed, not %d", rep.Settled, n)
	}
	f.receiver.WaitFor(t, before+n, 30*time.Second)
	f.settled(20 * time.Second)
	again := map[string]bool{}
	for _, r := range f.receiver.Log.All()[before:] {
		again[r.MessageID] = true
	}
	if len(again) != n || f.receiver.Log.Len() != before+n {
		t.Errorf("%d of %d events came back, by %d requests", len(again), n, f.receiver.Log.Len()-before)
	}
	if left := f.open(s, dlq.Filter{}); len(left) != 0 {
		t.Errorf("%d letters are left", len(left))
	}
}
