package dispatcher

import (
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

// outcomes is a breaker that is told of attempts one after another.
type outcomes struct {
	t *testing.T
	b breaker
}

func (o *outcomes) begin() (ticket, time.Time) {
	o.t.Helper()
	t, ok := o.b.admit(time.Now())
	if !ok {
		o.t.Fatal("it does not admit an attempt")
	}
	return t, time.Now()
}

// each makes n attempts, one at a time, and reports after which of them it opened; 0: none.
func (o *outcomes) each(n int, s signal, pause time.Duration) int {
	o.t.Helper()
	for i := range n {
		t, started := o.begin()
		time.Sleep(time.Millisecond)
		if o.b.settle(t, s, started, time.Now(), 0); !o.b.closed() {
			return i + 1
		}
		time.Sleep(pause)
	}
	return 0
}

func withBreaker(t *testing.T, f func(t *testing.T, o *outcomes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, &outcomes{t: t})
	})
}

func TestFiveFailuresInARowOpenItHoweverFarApart(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Minute, 20 * time.Hour} {
		withBreaker(t, func(t *testing.T, o *outcomes) {
			if n := o.each(9, signalFailure, pause); n != 5 {
				t.Errorf("a failure each %s opened it after %d", pause, n)
			}
		})
	}
}

func TestASuccessBetweenFailuresBeginsTheRowAgain(t *testing.T) {
	withBreaker(t, func(t *testing.T, o *outcomes) {
		o.each(15, signalSuccess, 0)
		for range 3 {
			if n := o.each(4, signalFailure, 0); n != 0 {
				t.Fatal("it opened after four in a row")
			}
			o.each(10, signalSuccess, 0)
		}
	})
}

func TestOneRestartWithTenOpenRequestsIsOneFailure(t *testing.T) {
	withBreaker(t, func(t *testing.T, o *outcomes) {
		o.each(10, signalSuccess, 0)
		round := func(s signal) {
			tickets := make([]ticket, 10)
			started := time.Now()
			for i := range tickets {
				tickets[i], _ = o.begin()
			}
			time.Sleep(time.Second)
			for i, tk := range tickets {
				o.b.settle(tk, s, started, time.Now(), 9-i)
			}
		}
		round(signalFailure)
		if !o.b.closed() {
			t.Fatal("ten requests that failed together opened it")
		}
		o.each(30, signalSuccess, 0)
		round(signalTimeout)
		if o.b.closed() {
			t.Error("a round in which all timed out did not open it")
		}
	})
}

func TestOneTimeoutOfAnIdleEndpointDoesNotOpenItAndASecondInARowDoes(t *testing.T) {
	withBreaker(t, func(t *testing.T, o *outcomes) {
		if n := o.each(1, signalTimeout, time.Hour); n != 0 {
			t.Fatal("it opened after one")
		}
		o.each(1, signalSuccess, time.Hour)
		if n := o.each(3, signalTimeout, time.Hour); n != 2 {
			t.Errorf("it opened after %d, want 2", n)
		}
	})
}

func TestHalfOfTheLastHundredOpensIt(t *testing.T) {
	withBreaker(t, func(t *testing.T, o *outcomes) {
		for i := range 19 {
			if o.each(1, []signal{signalFailure, signalSuccess}[i%2], 0) != 0 {
				t.Fatalf("it opened after %d outcomes", i+1)
			}
		}
		if o.each(1, signalFailure, 0) == 0 {
			t.Error("11 of 20 did not open it")
		}
	})
	withBreaker(t, func(t *testing.T, o *outcomes) {
		for i := range 300 {
			s := signalSuccess
			if i%5 < 2 {
				s = signalFailure
			}
			if o.each(1, s, 0) != 0 {
				t.Fatalf("it opened at 40 %%, after %d", i+1)
			}
		}
	})
}

func TestRefusalsOpenItOnlyWhenNearlyAllAnswersOfTenMinutesAre(t *testing.T) {
	for _, c := range []struct {
		name  string
		pause time.Duration
		every int // one in so many is a success; 0: none
		opens bool
	}{
		{"all are", time.Second, 0, true},
		{"all but one in forty", time.Second, 40, true},
		{"nine in ten", time.Second, 10, false},
		{"all, but over an hour", 2 * time.Minute, 0, false},
	} {
		withBreaker(t, func(t *testing.T, o *outcomes) {
			opened := 0
			for i := range 200 {
				s := signalClient
				if c.every > 0 && i%c.every == c.every-1 {
					s = signalSuccess
				}
				if opened = o.each(1, s, c.pause); opened != 0 {
					opened = i + 1
					break
				}
			}
			if (opened != 0) != c.opens {
				t.Errorf("%s: opened after %d", c.name, opened)
			}
		})
	}
}

func TestTooManyRequestsMeansUp(t *testing.T) {
	withBreaker(t, func(t *testing.T, o *outcomes) {
		o.each(4, signalFailure, 0)
		o.each(1, signalThrottled, 0)
		if o.each(4, signalFailure, 0) != 0 || o.each(200, signalThrottled, 0) != 0 {
			t.Error("429 counted as a failure")
		}
	})
}

func TestItOpensForTwiceAsLongEachTimeUpToTenMinutes(t *testing.T) {
	withBreaker(t, func(t *testing.T, o *outcomes) {
		o.each(5, signalFailure, 0)
		for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
			if got := time.Until(o.b.until); got != want {
				t.Errorf("opening %d lasts %s, want %s", i+1, got, want)
			}
			if _, ok := o.b.admit(time.Now()); ok {
				t.Fatal("it admitted a request while it was open")
			}
			time.Sleep(want + time.Millisecond)
			probe, started := o.begin()
			if _, ok := o.b.admit(time.Now()); ok {
				t.Fatal("it admitted a second probe")
			}
			o.b.settle(probe, signalFailure, started, time.Now(), 0)
		}
		time.Sleep(10*time.Minute + time.Millisecond)
		o.each(closeSuccesses-1, signalSuccess, 0)
		step := o.b.step
		o.each(1, signalSuccess, 0)
		if step == 0 || o.b.step != 0 {
			t.Errorf("step %d before and %d after 20 successes", step, o.b.step)
		}
		o.each(5, signalFailure, 0)
		if got := time.Until(o.b.until); got != openFirst {
			t.Errorf("after 20 successes it opens for %s", got)
		}
	})
}

func TestAnExcludedProbeDoesNotStick(t *testing.T) {
	withBreaker(t, func(t *testing.T, o *outcomes) {
		o.each(5, signalFailure, 0)
		step := o.b.step
		time.Sleep(openFirst + time.Millisecond)
		for range 3 {
			probe, started := o.begin()
			o.b.settle(probe, signalExcluded, started, time.Now(), 0)
			time.Sleep(time.Millisecond)
		}
		probe, started := o.begin()
		if o.b.step != step {
			t.Error("an interrupted probe counted as a failure")
		}
		if o.b.settle(probe, signalSuccess, started, time.Now(), 0); !o.b.closed() {
			t.Error("it did not close")
		}
	})
}

func TestALateProbeDoesNotReopenWhatAnOperatorClosed(t *testing.T) {
	withBreaker(t, func(t *testing.T, o *outcomes) {
		o.each(5, signalFailure, 0)
		time.Sleep(openFirst + time.Millisecond)
		probe, started := o.begin()
		o.b.reset()
		if o.b.settle(probe, signalFailure, started, time.Now(), 0); !o.b.closed() {
			t.Error("a probe from before the reset opened it")
		}
	})
}

func TestLateResultsOfAnEarlierTimeCountForNothing(t *testing.T) {
	withBreaker(t, func(t *testing.T, o *outcomes) {
		late, started := o.begin()
		o.each(5, signalFailure, 0)
		time.Sleep(openFirst + time.Millisecond)
		probe, at := o.begin()
		o.b.settle(probe, signalSuccess, at, time.Now(), 0)
		o.b.settle(late, signalFailure, started, time.Now(), 0)
		if o.b.row.count != 0 || len(o.b.ring) != 0 {
			t.Error("a result from before the opening was counted")
		}
	})
}

func TestARestartSendsNothingBeforeTheBreakersTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := &memoryHold{health: map[string]schemas.Health{}}
		w := newWorldOn(t, Config{}, topics)
		w.answers(func(*http.Request) (*http.Response, error) { return status(500), nil })
		const endpoints = 500
		register := func(w *world) {
			for i := range endpoints {
				w.endpoint("e"+strconv.Itoa(i), one)
			}
		}
		register(w)
		for i := range endpoints {
			w.send("e"+strconv.Itoa(i), 8)
		}
		time.Sleep(10 * time.Second)
		w.crash()
		w2 := newWorldOn(t, Config{}, topics)
		register(w2)
		time.Sleep(20*time.Second - time.Millisecond)
		w2.see(func() {
			if len(w2.posts) != 0 {
				t.Fatalf("%d POSTs before any breaker's time", len(w2.posts))
			}
		})
		time.Sleep(10 * time.Second)
		w2.see(func() {
			if len(w2.posts) < endpoints*3 {
				t.Errorf("%d POSTs after it, want all that was held", len(w2.posts))
			}
		})
	})
}

func TestAHealthRecordOfAClockThatWasAheadStopsAnEndpointForNoLongerThanAnAnswerMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Now().Add(30 * 24 * time.Hour)
		topics := &memoryHold{health: map[string]schemas.Health{
			"open":   {Version: 1, Since: &schemas.Episode{FailingSince: ahead, Attempts: 5, BreakerStep: 1, OpenUntil: ahead}},
			"paused": {Version: 1, Paused: &schemas.Pause{Until: ahead, Status: 429, Version: 1}},
		}}
		w := newWorldOn(t, Config{}, topics)
		w.endpoint("open")
		w.endpoint("paused")
		w.send("open", 1)
		w.send("paused", 1)
		time.Sleep(openFirst + time.Second)
		w.see(func() {
			if n := len(w.bodies("open")); n != 1 {
				t.Errorf("%d POSTs to the one whose breaker was open, want 1 after %s", n, openFirst)
			}
			if n := len(w.bodies("paused")); n != 0 {
				t.Errorf("%d POSTs to the one that is paused", n)
			}
		})
		time.Sleep(maxPause)
		w.see(func() {
			if n := len(w.bodies("paused")); n != 1 {
				t.Errorf("%d POSTs to the one that was paused, want 1 after %s", n, maxPause)
			}
		})
	})
}

func TestEachTransitionOfABreakerIsToldWithItsEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		var told []BreakerChange
		w.d.Hooks.BreakerChanged = func(c BreakerChange) { told = append(told, c) }
		w.endpoint("e", one)
		w.answers(func(*http.Request) (*http.Response, error) { return status(500), nil })
		start := time.Now()
		w.send("e", 8)
		time.Sleep(time.Second)
		w.answers(func(*http.Request) (*http.Response, error) { return status(200), nil })
		time.Sleep(openFirst + time.Second)
		w.see(func() {
			if len(told) != 3 || told[0].Until.Sub(start).Round(time.Second) != openFirst || !told[2].Until.IsZero() {
				t.Fatalf("told %+v", told)
			}
			for i, want := range []BreakerState{BreakerClosed, BreakerOpen, BreakerHalfOpen} {
				if c := told[i]; c.EndpointID != "e" || c.From != want || c.To != told[(i+1)%3].From {
					t.Errorf("%d: %+v", i, c)
				}
			}
		})
	})
}

func TestEnableClosesTheBreakerAndEndsAPauseAtOnce(t *testing.T) {
	for _, code := range []int{500, 429} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.endpoint("e", one)
			w.answers(func(*http.Request) (*http.Response, error) { return status(code, "Retry-After", "3600"), nil })
			w.send("e", 20)
			time.Sleep(2 * time.Second)
			w.answers(func(*http.Request) (*http.Response, error) { return status(200), nil })
			w.endpoint("e", one, func(e *Endpoint) { e.Version = 2 })
			time.Sleep(3 * time.Second)
			w.see(func() {
				if n := len(slices.Compact(slices.Sorted(slices.Values(w.bodies("e"))))); n != 20 {
					t.Errorf("%d of 20 were sent after a newer configuration ended the wait for a %d", n, code)
				}
			})
		})
	}
}
