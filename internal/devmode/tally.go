package devmode

import (
	"fmt"
	"strings"
	"time"

	"github.com/milena-project/milena/schemas"
)

// tally counts what the attempts topic says of the deliveries of this run's events, each
// once, by its newest outcome: one that was replayed is no longer dead. It is guarded by
// show's lock.
type tally struct {
	prefix    string // of the ids of this run's events
	delivered int
	failed    int                       // attempts that will be tried again
	waiting   map[string]time.Time      // delivery id, next try
	dead      map[string]schemas.Reason // by delivery id
	others    int                       // deliveries that came to an end and are none of this run's

	seconds [10]int // delivered, of any run, in each of the last seconds
	newest  int64   // unix second of the newest of them
}

func newTally(prefix string) *tally {
	return &tally{prefix: prefix, waiting: map[string]time.Time{}, dead: map[string]schemas.Reason{}}
}

func (t *tally) add(a *schemas.Attempt, now time.Time) {
	if a.Outcome == schemas.OutcomeDelivered {
		t.advance(now)
		t.seconds[t.newest%int64(len(t.seconds))]++
	}
	if a.Source != Source || !strings.HasPrefix(a.EventID, t.prefix) {
		if a.Outcome == schemas.OutcomeDelivered || a.Outcome == schemas.OutcomeDead {
			t.others++
		}
		return
	}
	switch a.Outcome {
	case schemas.OutcomeDelivered:
		t.forget(a)
		t.delivered++
	case schemas.OutcomeRetry:
		t.forget(a)
		t.failed++
		t.waiting[a.DeliveryID] = a.NextTry
	case schemas.OutcomeDead:
		t.forget(a)
		t.dead[a.DeliveryID] = a.Reason
	}
}

// forget takes back what was counted of a delivery before this outcome.
func (t *tally) forget(a *schemas.Attempt) {
	_, waits := t.waiting[a.DeliveryID]
	_, died := t.dead[a.DeliveryID]
	delete(t.waiting, a.DeliveryID)
	delete(t.dead, a.DeliveryID)
	if !waits && !died && a.Generation > 0 && t.delivered > 0 {
		t.delivered-- // it was, and is sent again on demand
	}
}

// advance empties the seconds that have passed since the newest.
func (t *tally) advance(now time.Time) {
	n := int64(len(t.seconds))
	for passed := min(now.Unix()-t.newest, n); passed > 0; passed-- {
		t.seconds[(now.Unix()-passed+1)%n] = 0
	}
	t.newest = max(t.newest, now.Unix())
}

// notDue is how many wait for a next try whose time has not come. Those whose time
// has come are in flight, or held until their endpoint is well.
func (t *tally) notDue(now time.Time) (n int) {
	for _, next := range t.waiting {
		if next.After(now) {
			n++
		}
	}
	return n
}

// rate is deliveries a second over the last whole seconds.
func (t *tally) rate(now time.Time) float64 {
	t.advance(now)
	sum := 0
	for i, n := range t.seconds {
		if int64(i) != t.newest%int64(len(t.seconds)) { // the current one is not over
			sum += n
		}
	}
	return float64(sum) / float64(len(t.seconds)-1)
}

// Gauges are what only the running process knows.
type Gauges struct {
	InFlight int // requests being made
	Held     int // deliveries in the hold topic
}

// status is the line at the bottom of the terminal.
func (t *tally) status(now time.Time, events int, g Gauges) string {
	return fmt.Sprintf("%d events  %.1f delivered/s  %d in flight  %d held  %d waiting  %d dead",
		events, t.rate(now), g.InFlight, g.Held, t.notDue(now), len(t.dead))
}

// summary is what happened, in whole sentences.
func (t *tally) summary(now time.Time, events, deliveries int, r Received) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s sent, %s for endpoints:\n%d delivered, %d dead, %d waiting for their next try.\n",
		count(events, "event"), count(deliveries, "delivery"), t.delivered, len(t.dead), t.notDue(now))
	if rest := deliveries - t.delivered - len(t.dead) - t.notDue(now); rest > 0 {
		fmt.Fprintf(&b, "The other %d stand in Kafka and go on at the next start.\n", rest)
	}
	if t.others > 0 {
		fmt.Fprintf(&b, "Besides, %s of earlier runs or other commands came to an end.\n", count(t.others, "delivery"))
	}
	if r.Requests > 0 {
		fmt.Fprintf(&b, "The echo receiver verified the signatures of %s: %d right, %d wrong.\n", count(r.Requests, "request"), r.Verified, r.Bad)
	}
	if t.failed > 0 {
		fmt.Fprintf(&b, "%s failed and had or will have another: milena attempts --failed\n", count(t.failed, "attempt"))
	}
	reasons := map[schemas.Reason]int{}
	for _, reason := range t.dead {
		reasons[reason]++
	}
	for _, reason := range schemas.Reasons {
		if n := reasons[reason]; n > 0 {
			fmt.Fprintf(&b, "%s came of this run's events (%s).\n", count(n, "dead letter"), reason)
		}
	}
	if len(t.dead) > 0 {
		b.WriteString("All that are there now, of earlier runs and other commands too: milena dlq list\n")
	}
	return b.String()
}

func count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(what, "y"))
	}
	return fmt.Sprintf("%d %ss", n, what)
}
