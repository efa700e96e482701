//go:build !kafka

package flowtest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/lag"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// busyRun lets two processes do one of everything: deliver, try again, bury, hold and
// drop a copy; it returns when nothing is left to do. waits wait in a tier.
func busyRun(f *flow, n int) (procs []*process, waits int) {
	f.cfg.Dispatcher.LaneTime = 300 * time.Millisecond
	good := f.endpoints(4)
	f.endpoint("flaky", schedule(500*time.Millisecond, 500*time.Millisecond))
	f.receiver.Script("/flaky", func(_ int, r *testkit.Received) testkit.Answer {
		if r.Attempt == "1" {
			return testkit.Answer{Status: http.StatusServiceUnavailable}
		}
		return testkit.Answer{}
	})
	f.endpoint("dead", func(ep *registry.Endpoint) { ep.Retry = schemas.Retry{Preset: "none"} })
	f.receiver.Script("/dead", testkit.Status(http.StatusBadRequest))
	f.endpoint("slow", limit(1))
	f.receiver.Script("/slow", testkit.Always(testkit.Answer{Delay: 50 * time.Millisecond}))
	f.endpoint("waits", schedule(time.Hour))
	f.receiver.Script("/waits", testkit.Status(http.StatusServiceUnavailable))
	procs = []*process{f.start(), f.start()}
	for _, p := range procs {
		f.ready(p)
	}
	waits = 2 // fewer than what opens a breaker
	f.send(n, 300, good...)
	f.send(2, 300, "flaky")
	f.send(n, 300, "slow")
	f.send(waits, 300, "waits")
	f.send(4, 300, "dead")
	f.want(good[0], "/test", "copied", []byte("{}"))
	testkit.Produce(f.t, f.client, f.copies(good[0])...)
	f.delivered(time.Minute)
	f.awaitLetters(4)
	f.settled(30 * time.Second)
	return procs, waits
}

// After a busy run what the processes count is what the receiver counted, and what
// milena lag reads from Kafka.
func TestAfterABusyRunTheFiguresAreTheReceivers(t *testing.T) {
	f := newFlow(t)
	procs, waits := busyRun(f, 30)
	var wrong []string
	testkit.Eventually(t, 30*time.Second, func() string { // the last acks, and health that is written once a second
		wrong = f.compareFigures(f.scrape(procs...), f.look(time.Now()), waits)
		return strings.Join(wrong, "\n")
	})
	s := f.scrape(procs...)
	t.Logf("%d requests: delivered %.0f, retry %.0f, dead %.0f; duplicates %.0f; parked %.0f, released %.0f; held %.0f, settled %.0f",
		f.receiver.Log.Len(), s.sum("milena_attempts_total", `outcome="delivered"`), s.sum("milena_attempts_total", `outcome="retry"`),
		s.sum("milena_attempts_total", `outcome="dead"`), s.sum("milena_duplicates_dropped_total"), s.sum("milena_parked_total"),
		s.sum("milena_released_total"), s.sum("milena_holds_total"), s.sum("milena_holds_settled_total"))
	if s.sum("milena_holds_total") == 0 || s.sum("milena_parked_total") == 0 {
		t.Error("the run was not busy enough to tell")
	}
}

// compareFigures lists what does not agree.
func (f *flow) compareFigures(s samples, rep *lag.Report, waits int) (wrong []string) {
	equal := func(what string, got, want float64) {
		if got != want {
			wrong = append(wrong, fmt.Sprintf("%s: %.0f, want %.0f", what, got, want))
		}
	}
	byStatus := map[int]int{}
	for _, r := range f.receiver.Log.All() {
		switch {
		case r.Path == "/dead":
			byStatus[http.StatusBadRequest]++
		case r.Path == "/waits", r.Path == "/flaky" && r.Attempt == "1":
			byStatus[http.StatusServiceUnavailable]++
		default:
			byStatus[http.StatusOK]++
		}
	}
	equal("attempts", s.sum("milena_attempts_total"), float64(f.receiver.Log.Len()))
	equal("delivered", s.sum("milena_attempts_total", `outcome="delivered"`, `status_class="2xx"`), float64(byStatus[http.StatusOK]))
	equal("retried", s.sum("milena_attempts_total", `outcome="retry"`, `status_class="5xx"`), float64(byStatus[http.StatusServiceUnavailable]))
	equal("dead attempts", s.sum("milena_attempts_total", `outcome="dead"`, `status_class="4xx"`), float64(byStatus[http.StatusBadRequest]))
	equal("delivery delays", s.sum("milena_delivery_delay_seconds_count"), float64(byStatus[http.StatusOK]))
	equal("durations", s.sum("milena_attempt_duration_seconds_count"), float64(f.receiver.Log.Len()))
	equal("duplicates", s.sum("milena_duplicates_dropped_total"), 1)
	equal("dead letters", s.sum("milena_dead_letters_total"), 4)
	equal("in flight", s.sum("milena_requests_in_flight"), 0)
	equal("queued", s.sum("milena_queued_deliveries"), 0)
	equal("unfinished", s.sum("milena_unfinished_records"), 0)
	equal("held", s.sum("milena_held_records"), 0)
	equal("left hold", s.sum("milena_holds_settled_total"), s.sum("milena_holds_total"))
	waiting, overdue := int64(0), int64(0)
	for _, t := range rep.Topics {
		waiting += t.Waiting
		overdue += t.Overdue
		if tier, ok := strings.CutPrefix(t.Topic, f.names().RetryPrefix()); ok {
			label := `tier="` + tier + `"`
			equal("parked less released in "+tier, s.sum("milena_parked_total", label)-s.sum("milena_released_total", label), float64(t.Unfinished))
		}
	}
	equal("waiting by lag", float64(waiting), float64(waits))
	equal("overdue by lag", float64(overdue), 0)
	equal("held by lag", float64(rep.Hold.Records), 0)
	equal("unfinished by lag", float64(f.topicOf(rep, f.names().Deliveries()).Unfinished), 0)
	if rep.Letters == nil || rep.Letters.Open != 4 {
		wrong = append(wrong, fmt.Sprintf("dead letters by lag: %+v", rep.Letters))
	}
	return wrong
}

// What waits in a long tier is neither late nor work.
func TestWhatWaitsInTheLongestTierIsNoAlarm(t *testing.T) { waitInTheLongestTier(t, 2_000) }
