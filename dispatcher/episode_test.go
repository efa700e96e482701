package dispatcher

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

// failing sends a record an hour, which fails, for so many hours.
func failing(w *world, hours int) {
	for range hours {
		w.send("e", 1)
		time.Sleep(time.Hour)
	}
}

func kinds(w *world) (all []schemas.NoticeKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.notices {
		all = append(all, n.Kind)
	}
	return all
}

func TestAnEndpointWithoutSuccessForThreeDaysIsDisabledOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := &memoryHold{health: map[string]schemas.Health{}}
		var all []schemas.NoticeKind
		ids := map[string]bool{}
		var w *world
		begun := time.Now()
		for range 3 { // three processes, one after another
			if w != nil {
				w.crash()
			}
			w = newWorldOn(t, Config{}, topics)
			w.endpoint("e")
			w.answers(func(*http.Request) (*http.Response, error) { return status(500), nil })
			failing(w, 23)
			w.see(func() {
				if d := time.Since(begun); d < disableAfter && len(w.letters) > 0 {
					t.Fatalf("a dead letter after %s: %s", d, w.letters[0].Reason)
				}
			})
			all = append(all, kinds(w)...)
			for _, n := range w.notices {
				ids[n.ID] = true
			}
		}
		before := len(all)
		failing(w, 8)
		w.see(func() {
			if len(w.letters) == 0 || w.letters[0].Reason != schemas.ReasonEndpointDisabled {
				t.Errorf("%d letters after three days", len(w.letters))
			}
		})
		got := kinds(w)
		if before == 0 || all[0] != schemas.NoticeFailing || len(ids) != 1 || got[len(got)-1] != schemas.NoticeDisabled {
			t.Errorf("notices %v with %d ids, then %v", all, len(ids), got)
		}
		// Switched off stays switched off over a restart, and enable ends it.
		w.crash()
		w = newWorldOn(t, Config{}, topics)
		w.endpoint("e")
		w.send("e", 1)
		w.see(func() {
			if len(w.posts) != 0 || len(w.letters) != 1 {
				t.Errorf("%d POSTs and %d letters after a restart", len(w.posts), len(w.letters))
			}
		})
		w.endpoint("e", func(e *Endpoint) { e.Version = 2 })
		w.send("e", 1)
		w.see(func() {
			if len(w.posts) != 1 {
				t.Errorf("%d POSTs after enable", len(w.posts))
			}
		})
	})
}

func TestFailingIsToldAfterAnHourAndRecoveredAfterThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.answers(func(*http.Request) (*http.Response, error) { return status(500), nil })
		send := func(n int) {
			for range n {
				w.send("e", 1)
				time.Sleep(10 * time.Minute)
			}
		}
		send(6)
		if got := kinds(w); len(got) != 0 {
			t.Fatalf("notices %v within the first hour", got)
		}
		send(2)
		if got := kinds(w); !slices.Equal(got, []schemas.NoticeKind{schemas.NoticeFailing}) {
			t.Fatalf("notices %v after an hour", got)
		}
		w.answers(func(*http.Request) (*http.Response, error) { return status(200), nil })
		send(3)
		if got := kinds(w); !slices.Equal(got, []schemas.NoticeKind{schemas.NoticeFailing, schemas.NoticeRecovered}) {
			t.Errorf("notices %v after it was back", got)
		}
		w.answers(func(*http.Request) (*http.Response, error) { return status(500), nil })
		send(2)
		w.answers(func(*http.Request) (*http.Response, error) { return status(200), nil })
		send(1)
		if got := kinds(w); len(got) != 2 {
			t.Errorf("notices %v after a short trouble", got)
		}
	})
}

func TestAFailureAMinuteNeverSwitchesOffAnEndpointThatSucceedsNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		n := 0
		w.answers(func(*http.Request) (*http.Response, error) {
			if n++; n%30 == 0 {
				return status(200), nil
			}
			return status(500), nil
		})
		for range 4 * 24 * 6 {
			w.send("e", 1)
			time.Sleep(10 * time.Minute)
		}
		if got := kinds(w); slices.Contains(got, schemas.NoticeDisabled) {
			t.Error("it was disabled although it succeeds")
		}
	})
}

// A record a minute, which fails, for three days, over three restarts.
func TestAFailureAMinuteOpensTellsAndDisablesAtTheRightTimesOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := &memoryHold{health: map[string]schemas.Health{}}
		begun := time.Now()
		var posts []time.Time
		var told []schemas.Notice
		var w *world
		for _, until := range []time.Duration{20 * time.Hour, 41 * time.Hour, 60 * time.Hour, 80 * time.Hour} {
			w = newWorldOn(t, Config{}, topics)
			w.endpoint("e")
			w.answers(func(*http.Request) (*http.Response, error) { return status(500), nil })
			for time.Since(begun) < until {
				w.send("e", 1)
				time.Sleep(time.Minute)
			}
			w.see(func() {
				for _, p := range w.posts {
					posts = append(posts, p.at)
				}
				told = append(told, w.notices...)
				if d := time.Since(begun); d < disableAfter && len(w.letters) > 0 {
					t.Errorf("a dead letter after %s: %s", d, w.letters[0].Reason)
				}
			})
			if until < 80*time.Hour {
				w.crash()
			}
		}
		// Five in a row open it, and the next arrival is its probe, for nothing is held;
		// then one from hold at the end of each opening, which is the longest from the
		// sixth on, restart or not.
		gaps := []time.Duration{time.Minute, time.Minute, time.Minute, time.Minute, time.Minute, 2 * openFirst, 4 * openFirst, 8 * openFirst, 16 * openFirst}
		for i := 1; i < len(posts); i++ {
			want := openLongest
			if i <= len(gaps) {
				want = gaps[i-1]
			}
			if gap := posts[i].Sub(posts[i-1]); gap < want || gap > want+time.Second {
				t.Errorf("attempt %d came %s after the one before, want %s", i+1, gap, want)
			}
		}
		var failing, disabled time.Duration
		for _, n := range told {
			switch n.Kind {
			case schemas.NoticeFailing:
				if failing == 0 {
					failing = n.At.Sub(begun)
				}
			case schemas.NoticeDisabled:
				disabled = n.At.Sub(begun)
			}
		}
		if failing < noticeAfter || failing > noticeAfter+openLongest {
			t.Errorf("told that it is failing after %s, want an hour", failing)
		}
		if disabled < disableAfter || disabled > disableAfter+openLongest+time.Second {
			t.Errorf("disabled after %s, want three days", disabled)
		}
		w.see(func() {
			t.Logf("%d attempts of %d records; failing told after %s, disabled after %s", len(posts), 80*60, failing, disabled)
			for _, l := range w.letters {
				if l.Reason != schemas.ReasonEndpointDisabled {
					t.Fatalf("a dead letter %s", l.Reason)
				}
			}
			if len(w.letters) == 0 {
				t.Error("what waits for a disabled endpoint did not die")
			}
		})
	})
}
