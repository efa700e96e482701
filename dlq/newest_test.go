package dlq

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// story is what happens to a delivery, and what the report is to say of it: on an endpoint
// that has work on hold, and on one that has none.
type story struct {
	first       schemas.Outcome // of the first life; empty: no attempt
	then        string          // with the letter: nothing, or discard, replay, elsewhere, expire, resend
	second      schemas.Outcome // of the life that was made then
	held, other Gap
}

var (
	isDelivered = Gap{Delivered: 1}
	isDead      = Gap{Dead: 1}
	isRetrying  = Gap{Retrying: 1}
	isHeld      = Gap{Held: 1}
	isMissing   = Gap{Missing: 1}
	isDiscarded = Gap{Discarded: 1}
	isElsewhere = Gap{Elsewhere: 1}
	isGone      = Gap{Gone: 1}
)

var stories = []story{
	{"", "", "", isHeld, isMissing},
	{schemas.OutcomeInterrupted, "", "", isHeld, isMissing},
	{schemas.OutcomeDelivered, "", "", isDelivered, isDelivered},
	{schemas.OutcomeRetry, "", "", isRetrying, isRetrying},
	{schemas.OutcomeDead, "", "", isDead, isDead},
	{schemas.OutcomeDead, "discard", "", isDiscarded, isDiscarded},
	{schemas.OutcomeDead, "elsewhere", "", isElsewhere, isElsewhere},
	{schemas.OutcomeDead, "expire", "", isGone, isGone},
	{schemas.OutcomeDead, "replay", "", isHeld, isMissing},
	{schemas.OutcomeDead, "replay", schemas.OutcomeInterrupted, isHeld, isMissing},
	{schemas.OutcomeDead, "replay", schemas.OutcomeRetry, isRetrying, isRetrying},
	{schemas.OutcomeDead, "replay", schemas.OutcomeDead, isDead, isDead},
	{schemas.OutcomeDead, "replay", schemas.OutcomeDelivered, isDelivered, isDelivered},
	{schemas.OutcomeDead, "resend", "", isHeld, isHeld}, // another would be a repeat
	{schemas.OutcomeDead, "resend", schemas.OutcomeDead, isDead, isDead},
	{schemas.OutcomeDead, "resend", schemas.OutcomeDelivered, isDelivered, isDelivered},
	{schemas.OutcomeDelivered, "resend", schemas.OutcomeDead, isDelivered, isDelivered}, // once is enough
}

func (g *Gap) add(o Gap) {
	g.Deliveries++
	g.Delivered, g.Dead, g.Discarded, g.Elsewhere, g.Gone = g.Delivered+o.Delivered, g.Dead+o.Dead, g.Discarded+o.Discarded, g.Elsewhere+o.Elsewhere, g.Gone+o.Gone
	g.Retrying, g.Held, g.Missing = g.Retrying+o.Retrying, g.Held+o.Held, g.Missing+o.Missing
}

// What is counted is what happened to the newest life of each, whatever came before.
func TestTheGapReportCountsWhatWasMade(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_held", "ep_ok", "ep_new")
	since := time.Now().Add(-time.Minute)
	want := map[string]*Gap{"ep_held": {}, "ep_ok": {}}
	ids := map[string][]string{}
	type told struct {
		id, endpoint string
		story
	}
	var all []told
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's
	for i := range 100 {
		s := told{endpoint: "ep_ok", story: stories[i%len(stories)]}
		expect := s.other
		if random.IntN(2) == 0 {
			s.endpoint, expect = "ep_held", s.held
		}
		s.id = w.publish(s.endpoint, "e"+strconv.Itoa(i))
		want[s.endpoint].add(expect)
		switch {
		case s.then == "expire":
			w.logged(s.id, s.endpoint, 0, s.first)
		case s.first != "":
			w.attempted(s.id, s.endpoint, s.first)
		}
		ids[s.then] = append(ids[s.then], s.id)
		all = append(all, s)
	}
	w.flush()
	now := time.Now()
	w.execute(Job{Kind: schemas.RunDiscard, Filter: Filter{IDs: ids["discard"]}}, Options{})
	w.execute(Job{Filter: Filter{IDs: ids["elsewhere"]}, ToEndpoint: "ep_new"}, Options{})
	w.execute(Job{Filter: Filter{IDs: ids["replay"]}}, Options{})
	resent := map[string]string{} // by what it is a resend of
	for _, id := range ids["resend"] {
		plan, _, err := w.store.PlanResend(w.ctx(), Job{}, Past{Delivery: id})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.store.Execute(w.ctx(), plan, w.runs(), Options{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range w.deliveries() {
		if slices.Contains(ids["resend"], d.ResendOf) {
			resent[d.ResendOf] = d.ID()
		}
	}
	for _, s := range all {
		switch {
		case s.second == "":
		case s.then == "replay":
			w.attemptedAgain(s.id, s.endpoint, 1, s.second)
		default:
			w.resent(resent[s.id], s.id, s.endpoint, s.second)
		}
	}
	next := now.UnixMilli()
	h, err := json.Marshal(schemas.Health{Next: &next})
	if err != nil {
		t.Fatal(err)
	}
	w.writer.Write(kafka.Message{Topic: w.names.Health(), Partition: partitionOf("ep_held"), Key: []byte("ep_held"), Value: h}, nil)
	w.flush()
	w.dispatched()
	for _, past := range []Past{{Since: since, Missing: true}, {Since: since, Missing: true, Endpoints: []string{"ep_held"}},
		{Since: since, Missing: true, Endpoints: []string{"ep_ok"}}, {Since: since, Missing: true, Endpoints: []string{"ep_ok", "ep_held", "ep_new"}}} {
		plan, gaps, err := w.store.PlanResend(w.ctx(), Job{}, past)
		if err != nil {
			t.Fatal(err)
		}
		missing := int64(0)
		for id, g := range gaps {
			if *g != *want[id] {
				t.Errorf("%s of --endpoint %q:\n%+v, want\n%+v", id, past.Endpoints, *g, *want[id])
			}
			if sum := g.Delivered + g.Dead + g.Discarded + g.Elsewhere + g.Gone + g.Retrying + g.Held + g.Missing + g.Unknown; sum != g.Deliveries {
				t.Errorf("%s: %d of %d deliveries are in the columns", id, sum, g.Deliveries)
			}
			missing += g.Missing
		}
		if plan.Write != missing || len(gaps) != 1 && len(past.Endpoints) == 1 || len(gaps) != 2 && len(past.Endpoints) != 1 {
			t.Errorf("%d of %d missing would be sent, of %d endpoints", plan.Write, missing, len(gaps))
		}
	}
}

// resent writes what a dispatcher does when a resend has come to something.
func (w *world) resent(id, of, endpoint string, outcome schemas.Outcome) {
	if outcome == schemas.OutcomeDead {
		origin, _, err := schemas.ParseDeliveryID(id)
		if err != nil {
			w.Fatal(err)
		}
		w.die(schemas.Delivery{EndpointID: endpoint, Origin: origin, ResendOf: of, Attempt: 1, Payload: []byte("x"),
			Event: schemas.Event{ID: "e", Source: "/test", Type: "a.b", SpecVersion: "1.0"}}, schemas.ReasonExhausted, time.Now())
	}
	a := schemas.Attempt{DeliveryID: id, EndpointID: endpoint, ResendOf: of, Outcome: outcome, Number: 1}
	w.writer.Write(kafka.Message{Topic: w.names.Attempts(), Partition: partitionOf(endpoint), Key: []byte(endpoint), Value: schemas.AppendAttempt(nil, &a)}, nil)
}
