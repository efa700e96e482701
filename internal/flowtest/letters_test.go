package flowtest

import (
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// Every way to die that a test can wait for.
func TestInvariant8EveryDeathHasAReasonAHistoryAndAKey(t *testing.T) {
	f := newFlow(t)
	posts := make(map[schemas.Reason]int) // how many attempts come before the death
	actor := registry.Actor{Who: "test", Door: "test"}

	f.endpoint("exhausted", schedule(200*time.Millisecond))
	f.receiver.Script("/exhausted", testkit.Status(500))
	posts[schemas.ReasonExhausted] = 2

	f.endpoint("rejected", preset("proofledger"))
	f.receiver.Script("/rejected", testkit.Status(422))
	posts[schemas.ReasonRejected] = 1

	f.endpoint("gone")
	f.receiver.Script("/gone", testkit.Status(410))
	posts[schemas.ReasonGone] = 1

	f.endpoint("endpoint_disabled")
	_, err := f.admin.Disable(t.Context(), actor, "endpoint_disabled", "test")
	must(t, err)
	f.endpoint("endpoint_deleted")
	must(t, f.admin.Delete(t.Context(), actor, "endpoint_deleted", 0))
	f.endpoint("expired")
	posts[schemas.ReasonEndpointDisabled], posts[schemas.ReasonEndpointDeleted] = 0, 0
	posts[schemas.ReasonExpired], posts[schemas.ReasonMalformed] = 0, 0

	f.ready(f.start())
	var recs []*kgo.Record
	for reason := range posts {
		rec := f.record(string(reason), "death", []byte(`{"why":"`+string(reason)+`"}`))
		switch reason {
		case schemas.ReasonExpired:
			tooLate := time.Now().Add(f.cfg.Retry.MaxAge + time.Hour)
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: schemas.HeaderNotBefore, Value: strconv.AppendInt(nil, tooLate.UnixMilli(), 10)})
		case schemas.ReasonMalformed:
			rec.Key = nil
		}
		recs = append(recs, rec)
	}
	testkit.Produce(t, f.client, recs...)
	letters := f.awaitLetters(len(posts))
	f.settled(20 * time.Second)
	history := f.attempts()
	store := f.store()
	for reason := range posts {
		filter, err := dlq.Query{Reasons: []string{string(reason)}}.Resolve(time.Now())
		must(t, err)
		found := f.open(store, filter)
		if len(found) != 1 {
			t.Errorf("%d letters are found by reason %s", len(found), reason)
		}
	}
	for id, l := range letters {
		want, known := posts[l.Reason]
		if !known {
			t.Errorf("%s died of %q", id, l.Reason)
			continue
		}
		delete(posts, l.Reason)
		if l.Reason != schemas.ReasonMalformed && l.EndpointID != string(l.Reason) {
			t.Errorf("%s died of %s", id, l.Reason)
		}
		if gotID, generation, err := schemas.ParseLetterKey(l.Key()); err != nil || gotID != id || generation != 0 {
			t.Errorf("key %s of %s: %v", l.Key(), id, err)
		}
		if string(l.Payload) != `{"why":"`+string(l.Reason)+`"}` {
			t.Errorf("%s keeps %q", id, l.Payload)
		}
		if l.DiedAt.IsZero() || l.Attempt != want {
			t.Errorf("%s died at %s after %d attempts, not %d", id, l.DiedAt, l.Attempt, want)
		}
		checkDeath(t, l, history[id], want)
	}
	for reason := range posts {
		t.Errorf("nobody died of %s", reason)
	}
}

// checkDeath demands that the delivery log tells each attempt and the death.
func checkDeath(t *testing.T, l schemas.Letter, history []schemas.Attempt, posts int) {
	t.Helper()
	if len(history) != max(1, posts) {
		t.Errorf("%s: %d records in the delivery log, not %d", l.ID(), len(history), max(1, posts))
		return
	}
	for i, a := range history[:len(history)-1] {
		if a.Outcome != schemas.OutcomeRetry || a.Number != i+1 || a.NextTry.IsZero() || a.Status == 0 {
			t.Errorf("%s: record %d says %s of attempt %d, status %d, next try %s", l.ID(), i+1, a.Outcome, a.Number, a.Status, a.NextTry)
		}
	}
	last := history[len(history)-1]
	if last.Outcome != schemas.OutcomeDead || last.Reason != l.Reason || last.Number != posts {
		t.Errorf("%s: the last record says %s %q of attempt %d, not dead %q of %d", l.ID(), last.Outcome, last.Reason, last.Number, l.Reason, posts)
	}
}
