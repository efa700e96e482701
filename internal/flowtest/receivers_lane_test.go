package flowtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

var operator = registry.Actor{Who: "test", Door: "test"}

// A receiver that answers 410 is asked no more, and its owner is told.
func TestAReceiverThatIsGoneIsSwitchedOffAndItsOwnerTold(t *testing.T) {
	t.Parallel()
	f := newFlow(t)
	f.endpoint("gone", func(ep *registry.Endpoint) { ep.Owner = "owner@shop.example" })
	f.receiver.Script("/gone", testkit.Status(http.StatusGone))
	p := f.start()
	f.ready(p)
	testkit.Produce(t, f.client, f.record("gone", "first", []byte("{}")))
	f.awaitLetters(1)
	testkit.Eventually(t, 20*time.Second, func() string {
		if state, _ := lane(t, p.app, "gone"); state.Disabled != "" {
			return ""
		}
		return "its lane does not say that it is switched off"
	})
	testkit.Produce(t, f.client, f.record("gone", "second", []byte("{}")), f.record("gone", "third", []byte("{}")))
	reasons := map[schemas.Reason]int{}
	for _, l := range f.awaitLetters(3) {
		reasons[l.Reason]++
	}
	if reasons[schemas.ReasonGone] != 1 || reasons[schemas.ReasonEndpointDisabled] != 2 {
		t.Errorf("dead of %v", reasons)
	}
	if n := f.receiver.Count("/gone"); n != 1 {
		t.Errorf("%d requests came, not one", n)
	}
	var notices []schemas.Notice
	testkit.Eventually(t, 20*time.Second, func() string {
		notices = f.notices()
		return map[bool]string{true: "no notice"}[len(notices) == 0]
	})
	if n := notices[0]; n.Kind != schemas.NoticeDisabled || n.EndpointID != "gone" || n.Owner != "owner@shop.example" || n.LastStatus != http.StatusGone {
		t.Errorf("%+v", n)
	}
}

// One bad event among good ones says nothing about the receiver.
func TestOneEventThatIsRefusedOpensNoBreaker(t *testing.T) {
	t.Parallel()
	f := newFlow(t)
	const n = 40
	for _, preset := range []string{"standard", "proofledger", "fast"} {
		f.endpoint(preset, func(ep *registry.Endpoint) { ep.Retry.Preset, ep.MaxInFlight = preset, 1 })
		f.receiver.Script("/"+preset, func(nth int, _ *testkit.Received) testkit.Answer {
			if nth == n/2 {
				return testkit.Answer{Status: http.StatusUnprocessableEntity}
			}
			return testkit.Answer{}
		})
	}
	p := f.start()
	f.ready(p)
	f.send(n, 200, "standard", "proofledger", "fast")
	f.receiver.WaitFor(t, 3*n, 30*time.Second)
	f.settled(20 * time.Second)
	if opened := metric(t, p.app, "milena_breaker_transitions_total"); opened != 0 {
		t.Errorf("breakers moved %v times", opened)
	}
}

// 429 says that the receiver is up and wants less at once.
func TestTooManyRequestsHalvesTheLaneAndOpensNoBreaker(t *testing.T) {
	t.Parallel()
	const most, n = 8, 64
	f := newFlow(t)
	f.endpoint("busy", limit(most))
	p := f.start()
	f.ready(p)
	f.send(100, 200, "busy") // grows to its limit
	f.delivered(30 * time.Second)
	f.settled(20 * time.Second)
	gates := []chan struct{}{make(chan struct{}), make(chan struct{})}
	before := f.receiver.Count("/busy")
	f.receiver.Script("/busy", func(nth int, _ *testkit.Received) testkit.Answer {
		a := testkit.Answer{Hang: gates[1], Status: http.StatusTooManyRequests}
		if nth-before <= most {
			a.Hang = gates[0]
		}
		return a
	})
	testkit.Produce(t, f.client, f.numbered("busy", n)...)
	f.awaitInFlight(most, "busy")
	close(gates[0])
	testkit.Eventually(t, 20*time.Second, func() string {
		state, ok := lane(t, p.app, "busy")
		if !ok || state.Limit > most/2 || state.Limit < 1 || f.receiver.Count("/busy")-before < most+1 {
			return fmt.Sprintf("after %d answers of 429 the lane may have %d at once", f.receiver.Count("/busy")-before, state.Limit)
		}
		return ""
	})
	close(gates[1])
	testkit.Eventually(t, 30*time.Second, func() string {
		if got := f.receiver.Count("/busy") - before; got < n {
			return fmt.Sprintf("%d of %d came", got, n) // an open breaker would keep the rest for half a minute and more
		}
		return ""
	})
	f.settled(20 * time.Second)
	if opened := metric(t, p.app, "milena_breaker_transitions_total"); opened != 0 {
		t.Errorf("breakers moved %v times", opened)
	}
	for id, history := range f.attempts() {
		for _, a := range history {
			if a.Status == http.StatusTooManyRequests && a.Outcome != schemas.OutcomeRetry {
				t.Errorf("%s came to %s", id, a.Outcome)
			}
		}
	}
}

// numbered are n events for an endpoint whose ids end in their number.
func (f *flow) numbered(endpoint string, n int) (recs []*kgo.Record) {
	for i := range n {
		recs = append(recs, f.record(endpoint, "n-"+strconv.Itoa(i), []byte(strconv.Itoa(i))))
	}
	return recs
}

// A receiver that asks for a pause gets it: what waits is sent later, in order, and
// counts nothing; a restart does not forget the pause, and enabling the endpoint ends it.
func TestARetryAfterPausesTheLaneOverARestart(t *testing.T) {
	t.Parallel()
	f := newFlow(t)
	f.endpoint("paused", limit(1))
	f.endpoint("witness", limit(1))
	f.receiver.Script("/paused", testkit.Sequence(
		testkit.Answer{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"3000"}}}, testkit.Answer{}))
	p := f.start()
	f.ready(p)
	const n = 50
	testkit.Produce(t, f.client, f.record("paused", "first", []byte("{}")))
	f.receiver.WaitFor(t, 1, 20*time.Second)
	testkit.Produce(t, f.client, f.numbered("paused", n)...)
	// Whatever could be sent has been sent when others' deliveries behind it are.
	quiet := func(when string) {
		t.Helper()
		seen := f.receiver.Count("/witness")
		f.send(20, 200, "witness")
		testkit.Eventually(t, 30*time.Second, func() string {
			if got := f.receiver.Count("/witness") - seen; got < 20 {
				return fmt.Sprintf("the witness got %d of 20", got)
			}
			return ""
		})
		if got := f.receiver.Count("/paused"); got != 1 {
			t.Fatalf("%s: %d requests came during the pause, not one", when, got)
		}
	}
	quiet("before the restart")
	p.end(t)
	p = f.start()
	f.ready(p)
	quiet("after the restart")
	for id, history := range f.attempts() {
		if history[0].EndpointID == "paused" && (len(history) != 1 || history[0].EventID != "first" ||
			history[0].NextTry.Before(history[0].Started.Add(time.Minute))) {
			t.Errorf("%s: %+v", id, history)
		}
	}
	_, err := f.admin.Enable(t.Context(), operator, "paused")
	must(t, err)
	testkit.Eventually(t, 30*time.Second, func() string {
		if got := f.receiver.Count("/paused"); got != 1+n {
			return fmt.Sprintf("%d requests came, not %d", got, 1+n)
		}
		return ""
	})
	for i, r := range f.receiver.Log.All("/paused")[1:] {
		if id := r.Header.Get("Ce-Id"); r.Attempt != "1" || id != "n-"+strconv.Itoa(i) {
			t.Errorf("as number %d came %s, attempt %s", i, id, r.Attempt)
		}
	}
}

// What waits for its next try is sent by the configuration of that time.
func TestARetryIsMadeByTheConfigurationOfItsTime(t *testing.T) {
	t.Parallel()
	f := newFlow(t)
	tries := schedule(slices.Repeat([]time.Duration{time.Second}, 40)...)
	for _, id := range []string{"moved", "rotated", "disabled", "deleted"} {
		f.endpoint(id, tries)
		f.receiver.Script("/"+id, testkit.Status(http.StatusInternalServerError))
	}
	f.ready(f.start())
	ids := []string{"moved", "rotated", "disabled", "deleted"}
	for _, id := range ids {
		testkit.Produce(t, f.client, f.record(id, "waits", []byte(`{"of":"`+id+`"}`)))
	}
	testkit.Eventually(t, 30*time.Second, func() string {
		for _, id := range ids {
			if f.receiver.Count("/"+id) == 0 {
				return id + " has seen nothing"
			}
		}
		return ""
	})
	ctx := t.Context()
	_, err := f.admin.Update(ctx, operator, "moved", 0, func(ep *registry.Endpoint) error {
		ep.URL = f.receiver.URL("/new-place")
		return nil
	})
	must(t, err)
	rotated, err := f.admin.RotateSecret(ctx, operator, "rotated", 0)
	must(t, err)
	_, err = f.admin.Disable(ctx, operator, "disabled", "test")
	must(t, err)
	must(t, f.admin.Delete(ctx, operator, "deleted", 0))
	f.receiver.Secrets(t, "/rotated", rotated.Secrets[0].Secret)

	letters := f.awaitLetters(2)
	for _, l := range letters {
		want := map[string]schemas.Reason{"disabled": schemas.ReasonEndpointDisabled, "deleted": schemas.ReasonEndpointDeleted}[l.EndpointID]
		if l.Reason != want || l.Attempt == 0 {
			t.Errorf("%s died of %s after %d attempts", l.EndpointID, l.Reason, l.Attempt)
		}
	}
	testkit.Eventually(t, 30*time.Second, func() string {
		if f.receiver.Count("/new-place") == 0 {
			return "nothing came to the new URL"
		}
		all := f.receiver.Log.All("/rotated")
		if last := all[len(all)-1]; last.Invalid != nil {
			return "the last try is not signed with the new secret: " + last.Invalid.Error()
		}
		return ""
	})
	if r := f.receiver.Log.All("/new-place")[0]; r.Attempt == "1" {
		t.Error("the new URL got the first attempt")
	}
}

func (f *flow) notices() (all []schemas.Notice) {
	f.t.Helper()
	for _, rec := range f.read(f.names().Notices()) {
		var n schemas.Notice
		must(f.t, json.Unmarshal(rec.Value, &n))
		all = append(all, n)
	}
	return all
}
