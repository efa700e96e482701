package retrytopics

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

func compile(t testing.TB, r schemas.Retry) Policy {
	t.Helper()
	p, err := Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestStandardMakesNineAttemptsOverThreeDays(t *testing.T) {
	p := compile(t, schemas.Retry{})
	if p.Attempts() != 9 {
		t.Fatalf("attempts %d, want 9", p.Attempts())
	}
	shortest, longest := p.TotalSpan()
	if want := 68*time.Hour + 36*time.Minute; shortest != want {
		t.Errorf("shortest span %v, want %v", shortest, want)
	}
	if longest <= shortest || longest > shortest*11/10 || longest > schemas.DefaultMaxAge {
		t.Errorf("longest span %v of %v: want at most 10 %% more, and less than the max age", longest, shortest)
	}
	for attempt := 1; attempt <= 8; attempt++ {
		if _, v := p.Next(JitterKey{"d", 0, attempt}, epoch, epoch, 0); v != Retry {
			t.Errorf("attempt %d: %v", attempt, v)
		}
	}
	if _, v := p.Next(JitterKey{"d", 0, 9}, epoch, epoch, 0); v != Exhausted {
		t.Errorf("after the ninth: %v, want exhausted", v)
	}
}

func TestPresetsAreTheDocumentedOnes(t *testing.T) {
	want := map[string]struct {
		attempts int
		final    []int
		again    []int
	}{
		"standard":    {9, []int{410}, []int{301, 400, 401, 403, 404, 408, 409, 422, 425, 429, 500, 503}},
		"proofledger": {8, []int{301, 304, 400, 401, 403, 404, 409, 410, 422, 499}, []int{408, 425, 429, 500, 502, 503}},
		"fast":        {5, []int{400, 401, 403, 410}, []int{301, 404, 408, 409, 425, 429, 500}},
		"none":        {1, []int{410}, []int{404, 500}},
	}
	for _, preset := range Presets() {
		w, ok := want[preset.Name]
		if !ok {
			t.Errorf("undocumented preset %q", preset.Name)
			continue
		}
		delete(want, preset.Name)
		p := compile(t, schemas.Retry{Preset: preset.Name})
		if p.Attempts() != w.attempts || p.MaxAge() != schemas.DefaultMaxAge {
			t.Errorf("%s: %d attempts in %v, want %d in %v", preset.Name, p.Attempts(), p.MaxAge(), w.attempts, schemas.DefaultMaxAge)
		}
		for _, code := range w.final {
			if !p.FinalStatus(code) {
				t.Errorf("%s: %d is tried again", preset.Name, code)
			}
		}
		for _, code := range w.again {
			if p.FinalStatus(code) {
				t.Errorf("%s: %d is final", preset.Name, code)
			}
		}
	}
	if len(want) != 0 {
		t.Errorf("missing presets: %v", want)
	}
}

func TestPresetsCannotBeChangedThroughTheirCopies(t *testing.T) {
	Presets()[0].Schedule[0] = 0
	if got := Presets()[0].Schedule[0]; got != time.Minute {
		t.Errorf("first delay of standard is now %v", got)
	}
}

func TestAnEndpointOverridesWhatItNames(t *testing.T) {
	p := compile(t, schemas.Retry{Preset: "proofledger", Schedule: []schemas.Duration{schemas.Duration(2 * time.Second)},
		MaxAge: schemas.Duration(time.Hour)})
	if p.Attempts() != 2 || p.MaxAge() != time.Hour || !p.FinalStatus(404) {
		t.Errorf("attempts %d, max age %v, 404 final %v", p.Attempts(), p.MaxAge(), p.FinalStatus(404))
	}
	p = compile(t, schemas.Retry{Preset: "proofledger", FinalStatuses: []string{"501"}})
	if p.Attempts() != 8 || p.FinalStatus(404) || !p.FinalStatus(501) {
		t.Errorf("final statuses were not replaced")
	}
	p = compile(t, schemas.Retry{Schedule: []schemas.Duration{}, FinalStatuses: []string{}})
	if p.Attempts() != 1 {
		t.Errorf("an empty schedule makes %d attempts, want 1", p.Attempts())
	}
}

func TestCompileRefusesWithTheFieldAndWhatWouldBeRight(t *testing.T) {
	for _, c := range []struct {
		retry schemas.Retry
		want  string
	}{
		{schemas.Retry{Preset: "gentle"}, "standard, proofledger, fast, none"},
		{schemas.Retry{MaxAge: -1}, "retry.max_age"},
		{schemas.Retry{MaxAge: schemas.Duration(1000 * time.Hour)}, "retry.max_age"},
		{schemas.Retry{Schedule: []schemas.Duration{-1}}, "retry.schedule"},
		{schemas.Retry{Schedule: []schemas.Duration{schemas.Duration(1000 * time.Hour)}}, "retry.schedule"},
		{schemas.Retry{Schedule: make([]schemas.Duration, MostSteps+1)}, "at most 50"},
		{schemas.Retry{FinalStatuses: []string{"2xx"}}, "3xx, 4xx, 5xx"},
		{schemas.Retry{FinalStatuses: []string{"200"}}, "from 300 to 599"},
		{schemas.Retry{FinalStatuses: []string{"4x4"}}, "4x4"},
		{schemas.Retry{FinalStatuses: []string{""}}, "final_statuses"},
	} {
		if _, err := Compile(c.retry); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want one that says %q", c.retry, err, c.want)
		}
	}
}

func TestRetryAfterCountsWhenLaterAndUpToADay(t *testing.T) {
	p := compile(t, schemas.Retry{})
	key := JitterKey{"d", 0, 2} // 5m
	plain, _ := p.Next(key, epoch, epoch, 0)
	for _, c := range []struct {
		after time.Duration
		want  time.Time
	}{
		{time.Minute, plain},
		{-time.Hour, plain},
		{time.Hour, epoch.Add(time.Hour)},
		{48 * time.Hour, epoch.Add(24 * time.Hour)},
	} {
		if got, v := p.Next(key, epoch, epoch, c.after); v != Retry || !got.Equal(c.want) {
			t.Errorf("Retry-After %v: due %v (%v), want %v", c.after, got, v, c.want)
		}
	}
}

func TestATryBeyondTheMaxAgeIsExpiredNow(t *testing.T) {
	p := compile(t, schemas.Retry{})
	key := JitterKey{"d", 0, 8} // 24h
	if _, v := p.Next(key, epoch, epoch.Add(-69*time.Hour), 0); v != Retry {
		t.Errorf("69h old and at most 26h24m to wait: %v, want retry", v)
	}
	if _, v := p.Next(key, epoch, epoch.Add(-73*time.Hour), 0); v != Expired {
		t.Errorf("73h old and a day to wait: %v, want expired", v)
	}
	if _, v := p.Next(JitterKey{"d", 0, 1}, epoch, epoch.Add(-95*time.Hour), 2*time.Hour); v != Expired {
		t.Errorf("Retry-After beyond the max age: %v, want expired", v)
	}
	if _, v := p.Next(key, epoch, time.Time{}, 0); v != Retry {
		t.Errorf("no enqueued time: %v, want retry", v)
	}
}

func TestJitterNeverChangesFromVersionToVersion(t *testing.T) {
	p := compile(t, schemas.Retry{})
	key := JitterKey{"orders-0a1b2c3d-7-42.ep_1", 1, 0}
	var got []string
	for key.Attempt = 1; key.Attempt <= 8; key.Attempt++ {
		due, _ := p.Next(key, epoch, time.Time{}, 0)
		got = append(got, due.Sub(epoch).String())
	}
	want := []string{"1m1.867s", "5m28.937s", "31m52.126s", "2h7m3.569s", "6h1m4.011s", "12h55m9.962s", "24h30m5.525s", "26h5m3.998s"}
	if !slices.Equal(got, want) {
		t.Errorf("due after %q\nwant      %q", got, want)
	}
}

func TestCopiesComeDueTogetherAndOthersApart(t *testing.T) {
	p := compile(t, schemas.Retry{})
	seen := map[time.Duration]int{}
	const n = 10000
	for i := range n {
		key := JitterKey{"d-" + strconv.Itoa(i), 0, 7}
		due, _ := p.Next(key, epoch, time.Time{}, 0)
		again, _ := p.Next(key, epoch.Add(3*time.Second), time.Time{}, 0)
		if d := again.Sub(due); d < 2999*time.Millisecond || d > 3001*time.Millisecond {
			t.Fatalf("the copy made 3 s later is due %v later", d)
		}
		seen[due.Sub(epoch).Truncate(time.Second)]++
	}
	for at, k := range seen {
		if k > n/50 {
			t.Errorf("%d of %d come due within the second %v", k, n, at)
		}
	}
}

// drawRetry makes settings that Compile accepts.
func drawRetry(t *rapid.T) schemas.Retry {
	r := schemas.Retry{Preset: rapid.SampledFrom([]string{"", "standard", "proofledger", "fast", "none"}).Draw(t, "preset")}
	if rapid.Bool().Draw(t, "own schedule") {
		for _, s := range rapid.SliceOfN(rapid.Int64Range(0, int64(LongestStep)), 0, 12).Draw(t, "schedule") {
			r.Schedule = append(r.Schedule, schemas.Duration(s))
		}
	}
	r.MaxAge = schemas.Duration(rapid.Int64Range(int64(time.Second), int64(LongestMaxAge)).Draw(t, "max age"))
	return r
}

func TestPropertyNextIsBoundedNeverEarlyAndDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRetry(t)
		p, err := Compile(r)
		if err != nil {
			t.Fatal(err)
		}
		key := JitterKey{rapid.StringN(1, 60, -1).Draw(t, "id"), rapid.IntRange(0, 3).Draw(t, "generation"), rapid.IntRange(1, 14).Draw(t, "attempt")}
		now := epoch.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "now")))
		enqueued := now.Add(-time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "age")))
		after := time.Duration(rapid.Int64Range(0, int64(30*time.Hour)).Draw(t, "retry-after"))

		due, verdict := p.Next(key, now, enqueued, after)
		if again, v := p.Next(key, now, enqueued, after); !again.Equal(due) || v != verdict {
			t.Fatalf("two answers for one key: %v and %v", due, again)
		}
		if key.Attempt >= p.Attempts() {
			if verdict != Exhausted {
				t.Fatalf("attempt %d of %d: %v", key.Attempt, p.Attempts(), verdict)
			}
			return
		}
		s := p.steps[key.Attempt-1]
		spread := s.delay / 10
		if r.Preset == "fast" {
			spread = time.Second
		}
		if j := s.jitter(key); j < 0 || j > spread {
			t.Fatalf("jitter %v of %v is out of bounds", j, s.delay)
		}
		switch verdict {
		case Retry:
			if due.Before(now.Add(s.delay)) || due.Before(now.Add(min(after, schemas.MaxRetryAfter))) {
				t.Fatalf("due %v after now: before the schedule", due.Sub(now))
			}
			if latest := now.Add(max(s.delay+spread, after)); due.After(latest.Add(time.Millisecond)) {
				t.Fatalf("due %v after now: late", due.Sub(now))
			}
			if due.After(enqueued.Add(p.MaxAge())) {
				t.Fatalf("due after the max age")
			}
			if due.Nanosecond()%int(time.Millisecond) != 0 {
				t.Fatalf("due %v is no whole millisecond", due)
			}
			later, v := p.Next(key, now.Add(time.Second), enqueued.Add(time.Second), after)
			if v != Retry || later.Before(due) {
				t.Fatalf("a failure a second later is due earlier: %v, %v (%v)", due, later, v)
			}
		case Expired:
			if latest := now.Add(max(s.delay+spread, after)); !latest.Add(time.Millisecond).After(enqueued.Add(p.MaxAge())) {
				t.Fatalf("expired although even %v fits", latest)
			}
		default:
			t.Fatalf("attempt %d of %d: %v", key.Attempt, p.Attempts(), verdict)
		}
	})
}

func TestJitterIsSpreadOverItsRange(t *testing.T) {
	for _, s := range compile(t, schemas.Retry{}).steps {
		var sum float64
		const n = 20000
		for i := range n {
			sum += float64(s.jitter(JitterKey{strconv.Itoa(i), 0, 1}))
		}
		mean := sum / n / float64(s.delay)
		if math.Abs(mean-0.05) > 0.01 {
			t.Errorf("step %v: mean jitter %.3f of the delay, want about 0.05", s.delay, mean)
		}
	}
}

func FuzzCompileFinalStatus(f *testing.F) {
	f.Add("404")
	f.Add("4xx")
	f.Fuzz(func(t *testing.T, s string) {
		ranges, err := parseFinal(s)
		if err != nil {
			return
		}
		for _, r := range ranges {
			if r.low < 300 || r.high > 599 || r.low > r.high {
				t.Errorf("%q reads as %v", s, r)
			}
		}
	})
}
