//go:build !kafka

package flowtest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// One run stands still between its deliveries and their tombstones, and another one is
// forced beside it: the owner drops the second copies. Of "ok" the first ones are
// delivered, of "no" they die again, and each run is told so.
func TestOfTwoForcedRunsEachIsToldWhatTheReceiverGot(t *testing.T) {
	f := newFlow(t)
	for _, id := range []string{"ok", "no"} {
		f.endpoint(id, preset("proofledger"))
		f.receiver.Script("/"+id, testkit.Status(422))
	}
	f.ready(f.start())
	const each = 8 // fewer than open a breaker
	f.bury(each, "ok", "no")
	f.receiver.Script("/ok", testkit.Status(200))
	posts := f.receiver.Log.Len()

	cfg := f.cfg.KafkaConfig(f.logs)
	late := lateTombstones(t, f)
	cfg.Dialer = late.dial
	slow, err := dlq.Open(cfg)
	must(t, err)
	t.Cleanup(slow.Close)
	plan, err := slow.Plan(t.Context(), dlq.Job{Kind: schemas.RunReplay})
	must(t, err)
	beside, err := f.store().Plan(t.Context(), dlq.Job{Kind: schemas.RunReplay, Force: true, Snapshot: plan.Snapshot})
	must(t, err)
	runs, done := f.runs(), make(chan struct{})
	before := f.endOf(f.names().Deliveries())
	var first dlq.Report
	var firstErr error
	go func() {
		defer close(done)
		first, firstErr = slow.Execute(t.Context(), plan, runs, dlq.Options{Wait: true})
	}()
	testkit.Eventually(t, 30*time.Second, func() string { // before the second run begins
		written, got := f.endOf(f.names().Deliveries())-before, f.receiver.Log.Len()-posts
		if written == 0 || int64(got) < written {
			return fmt.Sprintf("%d letters are written, and the receiver has %d", written, got)
		}
		return ""
	})
	second, err := f.store().Execute(t.Context(), beside, f.runs(), dlq.Options{Wait: true})
	late.release()
	<-done
	for name, rep := range map[string]dlq.Report{"first": first, "second": second} {
		if rep.Outcomes == nil {
			t.Fatalf("the %s run: %v, %v", name, firstErr, err)
		}
	}
	counts := second.Outcomes.All
	if counts.Delivered != each || counts.Dead != each || counts.Total() != 2*each || counts.Duplicate == 0 || !errors.Is(err, dlq.ErrUndelivered) {
		t.Errorf("the second run: %+v, %v", counts, err)
	}
	if counts := first.Outcomes.All; counts.Total() != counts.Delivered+counts.Dead || first.Outcomes.Endpoints["ok"].Dead > 0 || first.Outcomes.Endpoints["no"].Delivered > 0 {
		t.Errorf("the first run: %+v", first.Outcomes)
	}
	if got := f.receiver.Log.Len() - posts; got != 2*each {
		t.Errorf("the receiver got %d requests for %d letters", got, 2*each)
	}
	if left := f.open(f.store(), dlq.Filter{}); len(left) != each {
		t.Errorf("%d letters are open, not the %d that died again", len(left), each)
	}
}
