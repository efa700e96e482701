package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

var three = time.Date(2026, 12, 1, 3, 0, 0, 0, zone)

func TestAWaitSaysWhatHasChangedAndNowAndThenThatNothingHas(t *testing.T) {
	var said []string
	w := &waits{say: func(text string) { said = append(said, text) }}
	o := &dlq.Outcomes{All: dlq.OutcomeCounts{Open: 2}, Endpoints: map[string]dlq.OutcomeCounts{"down": {Open: 2}},
		Waits: map[string]dlq.Wait{"down": {Breaker: "open", Until: three.Add(90 * time.Second), Held: 2}}}
	says := func(after time.Duration, want ...string) {
		t.Helper()
		said = nil
		w.outcomes(o, three.Add(after))
		if strings.Join(said, "\n") != strings.Join(want, "\n") {
			t.Errorf("after %s: %q, want %q", after, said, want)
		}
	}
	const counts = "delivered 0, dead 0, retrying 0, not yet 2"
	const why = "  down: 2 not yet tried; its breaker is open and lets one try through at 03:01:30; the endpoint has "
	says(0, counts, why+"2 on hold")
	o.Waits["down"] = dlq.Wait{Breaker: "open", Until: three.Add(90 * time.Second), Held: 3} // by live traffic
	says(10 * time.Second)
	says(59 * time.Second)
	says(60*time.Second, "nothing has changed since 03:00:00: "+counts, why+"3 on hold")
	says(100*time.Second, counts, "  down: 2 not yet tried; its breaker is open and its next try is due; the endpoint has 3 on hold")
	o.All, o.Endpoints, o.Waits = dlq.OutcomeCounts{Delivered: 2}, map[string]dlq.OutcomeCounts{"down": {Delivered: 2}}, nil
	says(102 * time.Second) // the next line is not before five seconds
	says(105*time.Second, "delivered 2, dead 0, retrying 0, not yet 0")
}

func TestAWaitNamesWhatEachEndpointWaitsFor(t *testing.T) {
	for _, c := range []struct {
		counts dlq.OutcomeCounts
		wait   dlq.Wait
		want   string
	}{
		{dlq.OutcomeCounts{Open: 1}, dlq.Wait{Breaker: "closed"}, "1 not yet tried; milena lag shows what stands before them"},
		{dlq.OutcomeCounts{Open: 1}, dlq.Wait{Breaker: "paused", Until: three.Add(time.Hour)}, "1 not yet tried; its receiver asked for a pause until 04:00:00"},
		{dlq.OutcomeCounts{Retrying: 3}, dlq.Wait{Breaker: "failing", Failing: three.Add(-24 * time.Hour), NextTry: three.Add(time.Minute)},
			"3 will be tried again, the next at 03:01:00; its attempts have failed since " + clock(three.Add(-24*time.Hour))},
		{dlq.OutcomeCounts{Retrying: 3}, dlq.Wait{Breaker: "unknown", NextTry: three}, "3 will be tried again, the next is due"},
	} {
		if got := waitText(c.counts, &c.wait, three); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	o := &dlq.Outcomes{Endpoints: map[string]dlq.OutcomeCounts{}, Waits: map[string]dlq.Wait{}}
	for _, id := range strings.Fields("a b c d e f g") {
		o.Endpoints[id], o.Waits[id] = dlq.OutcomeCounts{Open: 1}, dlq.Wait{}
	}
	if _, lines := waitsText(o, three); len(lines) != waitsShown+1 || lines[waitsShown] != "and 2 endpoints more" {
		t.Errorf("%q", lines)
	}
}

// open makes the breaker of an endpoint open, as its owner does.
func open(t *testing.T, fake *testkit.Fake, endpoint string, until time.Time) {
	t.Helper()
	value, err := json.Marshal(schemas.Health{Version: 1, Held: 2, Since: &schemas.Episode{FailingSince: time.Now(), BreakerStep: 1, OpenUntil: until}})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Produce(t, fake.Client(), &kgo.Record{Topic: "webhooks.health", Partition: kafka.Partition([]byte(endpoint), 12), Key: []byte(endpoint), Value: value})
}

func TestAnInterruptedWaitSaysWhatIsOpenAndGoesOnByRunsShow(t *testing.T) {
	fake, env := cluster(t)
	ids := bury(t, fake, "shop-1", "1", "2")
	until := time.Now().Add(time.Hour)
	open(t, fake, "shop-1", until)
	if res := run(t, "", env, "dlq", "replay", "--all", "--dry-run"); !strings.Contains(res.err, "breaker open, next try "+clock(until)) || !strings.Contains(res.err, "an open breaker lets one delivery through then") {
		t.Errorf("preview: %+v", res)
	}
	const late = "that is longer than a canary is waited for (--canary-wait 2m0s)"
	if res := run(t, "", env, "dlq", "replay", "--all", "--canary", "--dry-run"); !strings.Contains(res.err, late) {
		t.Errorf("preview of a canary that comes too late: %+v", res)
	}
	if res := run(t, "", env, "dlq", "replay", "--all", "--canary", "--canary-wait", "2h", "--dry-run"); strings.Contains(res.err, "than a canary is waited for") {
		t.Errorf("preview of a canary that has the time: %+v", res)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	said := &watcher{text: "shop-1: 2 not yet tried; its breaker is open and lets one try through at ", seen: interrupt}
	var out bytes.Buffer
	p := &program{in: strings.NewReader(""), out: &out, err: said, environ: env}
	if code := p.run(ctx, []string{"dlq", "replay", "--all", "--yes", "--wait"}); code != exitFailed {
		t.Errorf("exit %d", code)
	}
	text := said.all.String()
	_, id, _ := strings.Cut(text, "milena runs show ")
	id, _, _ = strings.Cut(id, " ")
	if !strings.Contains(text, "is done: 2 of 2 written\n") || !strings.Contains(text, "milena: interrupted; 2 of the 2 written are still on their way, and milena runs show "+id+" --wait waits for them\n") {
		t.Fatalf("%s", text)
	}
	res := run(t, "", env, "runs", "show", id, "--wait", "--wait-for", "1ms", "--json")
	var rep dlq.Report
	if err := json.Unmarshal([]byte(res.out), &rep); err != nil || res.code != exitFailed || rep.Outcomes.All.Open != 2 || rep.Outcomes.Waits["shop-1"].Held != 2 {
		t.Fatalf("%v %+v", err, res)
	}
	for _, delivery := range ids {
		a := schemas.Attempt{DeliveryID: delivery, EndpointID: "shop-1", Outcome: schemas.OutcomeDelivered, Number: 1, Generation: 1, Run: id}
		testkit.Produce(t, fake.Client(), &kgo.Record{Topic: "webhooks.attempts", Partition: kafka.Partition([]byte("shop-1"), 12), Key: []byte("shop-1"), Value: schemas.AppendAttempt(nil, &a)})
	}
	if res := run(t, "", env, "runs", "show", id, "--wait"); res.code != exitDone || !strings.Contains(res.out, "\n2          0     0         0        0        0          all\n") {
		t.Errorf("%+v", res)
	}
	if res := run(t, "", env, "runs", "resume", id); res.code != exitFailed || !strings.Contains(res.err, "milena runs show "+id+" --wait tells") || strings.Contains(res.err, "to go on with") {
		t.Errorf("%+v", res)
	}
}

func TestOnlyARunThatWritesDeliveriesIsWaitedFor(t *testing.T) {
	fake, env := cluster(t)
	recorded(t, fake, schemas.Run{ID: "run-x", Kind: schemas.RunDiscard, State: schemas.RunDone})
	if res := run(t, "", env, "runs", "show", "run-x", "--wait"); res.code != exitUsage || !strings.Contains(res.err, "run-x is of kind discard") {
		t.Errorf("%+v", res)
	}
	recorded(t, fake, schemas.Run{ID: "run-i", Kind: schemas.RunImport, State: schemas.RunDone})
	if res := run(t, "", env, "runs", "show", "run-i", "--wait"); res.code != exitUsage || !strings.Contains(res.err, "run-i is of kind import\n") {
		t.Errorf("%+v", res)
	}
	recorded(t, fake, schemas.Run{ID: "run-y", Kind: schemas.RunResend, State: schemas.RunCancelled, Counts: schemas.RunCounts{Matched: 5}})
	if res := run(t, "", env, "runs", "show", "run-y", "--wait"); res.code != exitFailed || !strings.Contains(res.err, "not all of the run was written; 0 of 5 are written, and a run of kind resend cannot be resumed") {
		t.Errorf("%+v", res)
	}
	if res := run(t, "", env, "runs", "show", "run-x", "--wait-for", "1s"); res.code != exitUsage || !strings.Contains(res.err, "--wait-for is for --wait") {
		t.Errorf("%+v", res)
	}
}

// What a run has written that was cancelled is waited for; that there is more is said.
func TestAWaitForARunThatWasCancelledSaysSo(t *testing.T) {
	fake, env := cluster(t)
	recorded(t, fake, schemas.Run{ID: "run-x", Kind: schemas.RunReplay, State: schemas.RunCancelled, Counts: schemas.RunCounts{Matched: 5}})
	res := run(t, "", env, "runs", "show", "run-x", "--wait")
	if res.code != exitFailed || !strings.Contains(res.err, "run-x is cancelled: 0 of 5 written") || !strings.Contains(res.err, "not all of the run was written; milena runs resume run-x goes on with it") {
		t.Errorf("%+v", res)
	}
}

// Its runner was killed: what is said of it is one line, as all errors are.
func TestAWaitForARunWhoseRunnerIsGoneSaysHowItGoesOn(t *testing.T) {
	fake, env := cluster(t)
	recorded(t, fake, schemas.Run{ID: "run-x", Kind: schemas.RunReplay, State: schemas.RunRunning, Updated: time.Now().Add(-time.Hour), Counts: schemas.RunCounts{Matched: 5, Written: 2}})
	res := run(t, "", env, "runs", "show", "run-x", "--wait")
	if res.code != exitFailed || !strings.HasSuffix(res.err, "milena: what became of 2 of 5 cannot be told, for the topics no longer say; milena runs resume run-x goes on with it\n") {
		t.Errorf("%+v", res)
	}
}

func TestAWaitForTheEndOfALiveRunIsBounded(t *testing.T) {
	fake, env := cluster(t)
	recorded(t, fake, schemas.Run{ID: "run-x", Kind: schemas.RunReplay, State: schemas.RunRunning, Counts: schemas.RunCounts{Matched: 5, Written: 2}})
	res := run(t, "", env, "runs", "show", "run-x", "--wait", "--wait-for", "1ms")
	if res.code != exitFailed || !strings.Contains(res.err, "the run is at work, 2 of 5 written\n") || !strings.Contains(res.err, "run-x is running, 2 of 5 written: it has not ended within --wait-for\n") {
		t.Errorf("%+v", res)
	}
}

func TestAWaitForTheEndOfARunOutlastsABrokerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		teller := &waits{say: func(text string) { said = append(said, text) }}
		st := dlq.Status{Run: schemas.Run{ID: "run-x", Counts: schemas.RunCounts{Matched: 5, Written: 2}}, Live: true}
		asked := 0
		get := func(context.Context, string) (dlq.Status, error) {
			if asked++; asked <= 10 {
				return dlq.Status{}, errors.New("no answer")
			}
			return dlq.Status{Run: schemas.Run{ID: "run-x", State: schemas.RunDone}}, nil
		}
		if err := ended(t.Context(), get, &st, teller); err != nil || asked != 11 || st.State != schemas.RunDone {
			t.Errorf("asked %d times: %v", asked, err)
		}
		if want := []string{"the run is at work, 2 of 5 written", "the run cannot be read, trying again: no answer"}; !slices.Equal(said, want) {
			t.Errorf("%q", said)
		}
		st.Live = true
		gone := func(context.Context, string) (dlq.Status, error) { return dlq.Status{}, dlq.ErrNoRun }
		if err := ended(t.Context(), gone, &st, teller); !errors.Is(err, dlq.ErrNoRun) {
			t.Error(err)
		}
	})
}

func TestOfARunThatHasEndedTheShortestWaitTellsWhatCameOfIt(t *testing.T) {
	fake, env := cluster(t)
	recorded(t, fake, schemas.Run{ID: "run-x", Kind: schemas.RunReplay, State: schemas.RunDone, Counts: schemas.RunCounts{Matched: 3, Written: 3}})
	res := run(t, "", env, "runs", "show", "run-x", "--wait", "--wait-for", "1ns")
	if res.code != exitFailed || strings.Contains(res.err, "it has not ended") || !strings.Contains(res.err, "what became of 3 of 3 cannot be told") {
		t.Errorf("%+v", res)
	}
}

func TestWhatCannotBeToldOfARunIsNotWaitedFor(t *testing.T) {
	fake, env := cluster(t)
	recorded(t, fake, schemas.Run{ID: "run-x", Kind: schemas.RunReplay, State: schemas.RunDone, Counts: schemas.RunCounts{Matched: 3, Written: 3}})
	res := run(t, "", env, "runs", "show", "run-x", "--wait")
	if res.code != exitFailed || !strings.Contains(res.err, "what became of 3 of 3 cannot be told") {
		t.Errorf("%+v", res)
	}
}

func TestLettersThatAreOneDeliveryAreTold(t *testing.T) {
	var out, said bytes.Buffer
	p := &program{out: &out, err: &said}
	p.writeOutcomes(&dlq.Outcomes{All: dlq.OutcomeCounts{Delivered: 2, Dead: 1}, Merged: 1})
	if want := "4 letters were written as 3 deliveries: those of one event to one endpoint are one\n"; said.String() != want {
		t.Errorf("%q", said.String())
	}
}

func TestNothingToDoHasNoBar(t *testing.T) {
	var said bytes.Buffer
	p := newProgress(&said, 0, true)
	p.say("run-x")
	p.end()
	if said.String() != "milena: run-x\n" {
		t.Errorf("%q", said.String())
	}
}

func TestCanariesThatAreWaitedForAreSaidOnATerminalToo(t *testing.T) {
	var said bytes.Buffer
	p := newProgress(&said, 9, true)
	p.update(dlq.Progress{Written: 2, Waiting: true})
	p.end()
	if !strings.Contains(said.String(), "2 canaries are sent, waiting for what comes of them\n") {
		t.Errorf("%q", said.String())
	}
}

func TestOneCanaryIsNoCanaries(t *testing.T) {
	var said bytes.Buffer
	p := newProgress(&said, 9, false)
	p.update(dlq.Progress{Written: 1, Waiting: true})
	p.end()
	if said.String() != "milena: the canary is sent, waiting for what comes of it\n" {
		t.Errorf("%q", said.String())
	}
}

func TestCanariesThatAreWaitedForAreSaidOnce(t *testing.T) {
	var said bytes.Buffer
	p := newProgress(&said, 9, false)
	for range 3 {
		p.update(dlq.Progress{Written: 2, Waiting: true})
	}
	p.update(dlq.Progress{Settled: 2}) // the rest begins, whose rate knows nothing of the waiting
	if p.before != 2 || p.began.Equal(p.created) {
		t.Errorf("the rest began with %d done, %s after the run", p.before, p.began.Sub(p.created))
	}
	p.following(dlq.Outcomes{})
	if text := said.String(); strings.Count(text, "2 canaries are sent") != 1 || !strings.Contains(text, "all is written; waiting for what becomes of it") {
		t.Errorf("%q", text)
	}
}

func TestWhatIsSaidAfterCtrlCBeginsALine(t *testing.T) {
	ctrlC, interrupt := context.WithCancel(t.Context())
	interrupt()
	for terminal, want := range map[bool]string{true: "milena: run-x\n\n", false: "milena: run-x\n"} {
		var said bytes.Buffer
		p := newProgress(&said, 2, terminal)
		p.say("run-x")
		p.interrupted(t.Context())
		p.interrupted(ctrlC)
		if said.String() != want {
			t.Errorf("terminal %v: %q", terminal, said.String())
		}
	}
	var none *progress // interrupted before the run was ours
	none.interrupted(ctrlC)
}
