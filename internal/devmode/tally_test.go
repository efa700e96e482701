package devmode

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestTallyFollowsDeliveriesToTheirEnd(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	tl := newTally("now-")
	add := func(a schemas.Attempt) {
		a.Source, a.EventID = Source, "now-1"
		tl.add(&a, now)
		a.EventID, a.DeliveryID = "before-1", "of before"
		tl.add(&a, now) // an earlier run's
	}
	add(schemas.Attempt{DeliveryID: "a", Outcome: schemas.OutcomeRetry, NextTry: now.Add(time.Second)})
	add(schemas.Attempt{DeliveryID: "b", Outcome: schemas.OutcomeRetry, NextTry: now.Add(time.Second)})
	add(schemas.Attempt{DeliveryID: "b", Outcome: schemas.OutcomeRetry, NextTry: now.Add(time.Second)})
	add(schemas.Attempt{DeliveryID: "c", Outcome: schemas.OutcomeDelivered})
	if got := tl.status(now, 3, Gauges{InFlight: 2, Held: 1}); got != "3 events  0.0 delivered/s  2 in flight  1 held  2 waiting  0 dead" {
		t.Error(got)
	}
	if got := tl.status(now.Add(2*time.Second), 3, Gauges{}); !strings.Contains(got, "0 waiting") {
		t.Error(got)
	}
	add(schemas.Attempt{DeliveryID: "a", Outcome: schemas.OutcomeDelivered})
	add(schemas.Attempt{DeliveryID: "b", Outcome: schemas.OutcomeDead, Reason: schemas.ReasonExhausted})
	got := tl.summary(now, 1, 4, Received{Requests: 5, Verified: 5})
	for _, want := range []string{"1 event sent, 4 deliveries for endpoints:\n2 delivered, 1 dead, 0 waiting", "The other 1 stand in Kafka", "Besides, 3 deliveries of earlier runs", "5 right, 0 wrong", "3 attempts failed", "1 dead letter came of this run's events (exhausted).\nAll that are there now, of earlier runs and other commands too: milena dlq list\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

func TestADeliveryThatIsReplayedCountsOnceByItsNewestOutcome(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	tl := newTally("now-")
	add := func(id string, generation int, o schemas.Outcome) {
		tl.add(&schemas.Attempt{Source: Source, EventID: "now-" + id, DeliveryID: id, Generation: generation, Outcome: o,
			NextTry: now.Add(time.Second), Reason: schemas.ReasonExpired}, now)
	}
	counts := func(want string) {
		t.Helper()
		if got := tl.summary(now, 4, 4, Received{}); !strings.Contains(got, want) || strings.Contains(got, "The other") {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	for _, id := range []string{"a", "b", "c"} {
		add(id, 0, schemas.OutcomeDead)
	}
	add("d", 0, schemas.OutcomeDelivered)
	counts("1 delivered, 3 dead, 0 waiting")
	add("a", 1, schemas.OutcomeDelivered)
	add("b", 1, schemas.OutcomeRetry)
	add("d", 1, schemas.OutcomeDelivered) // though it was delivered
	counts("2 delivered, 1 dead, 1 waiting")
	add("b", 1, schemas.OutcomeDead)
	counts("2 delivered, 2 dead, 0 waiting")
	counts("2 dead letters came of this run's events (expired)")
	add("b", 2, schemas.OutcomeDelivered)
	add("c", 1, schemas.OutcomeDelivered)
	if got := tl.status(now, 4, Gauges{}); !strings.HasSuffix(got, "0 waiting  0 dead") {
		t.Error(got)
	}
	counts("4 delivered, 0 dead, 0 waiting")
}

func TestRateIsThatOfTheLastSeconds(t *testing.T) {
	tl, now := newTally(""), time.Unix(1_800_000_000, 0)
	for range 18 {
		tl.add(&schemas.Attempt{Outcome: schemas.OutcomeDelivered}, now)
	}
	for _, c := range []struct {
		after time.Duration
		want  float64
	}{{0, 0}, {time.Second, 2}, {9 * time.Second, 2}, {10 * time.Second, 0}, {time.Hour, 0}} {
		if got := tl.rate(now.Add(c.after)); got != c.want {
			t.Errorf("after %s: %v, want %v", c.after, got, c.want)
		}
	}
}

func TestTheStatusLineStaysBelowTheOthers(t *testing.T) {
	var b bytes.Buffer
	s := &screen{out: &b, terminal: true, width: func() int { return 8 }}
	s.setStatus("0123456789")
	s.line("first")
	if _, err := s.Write([]byte("log\n")); err != nil {
		t.Fatal(err)
	}
	s.setStatus("")
	want := clearLine + "0123456" + clearLine + "first\n0123456" + clearLine + "log\n0123456" + clearLine
	if b.String() != want {
		t.Errorf("%q", b.String())
	}
	b.Reset()
	s = &screen{out: &b}
	s.setStatus("status")
	s.line("first")
	if b.String() != "first\n" {
		t.Errorf("%q", b.String())
	}
}
