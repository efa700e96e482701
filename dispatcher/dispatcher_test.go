package dispatcher

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestAnOffsetIsDoneOnlyWhenEveryWriteIsAcknowledged(t *testing.T) {
	for _, code := range []int{200, 400, 410, 500} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.endpoint("e")
			w.answer = func(*http.Request) (*http.Response, error) { return status(code), nil }
			w.holdAcks.Store(true)
			w.send("e", 1)
			w.see(func() {
				if len(w.posts) != 1 || len(w.done) != 0 {
					t.Fatalf("status %d: posts %d, done %v before any ack", code, len(w.posts), w.done)
				}
			})
			if code != 200 {
				w.mu.Lock()
				first := w.acks[0]
				w.acks = w.acks[1:]
				w.mu.Unlock()
				first()
				w.see(func() {
					if len(w.done) != 0 {
						t.Fatalf("status %d: done after one ack of two", code)
					}
				})
			}
			w.release()
			w.see(func() {
				if !slices.Equal(w.done, []int64{0}) {
					t.Fatalf("status %d: done %v after all acks", code, w.done)
				}
			})
		})
	}
}

func TestAFailedAttemptIsParkedWithItsDueTimeAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.answer = func(*http.Request) (*http.Response, error) { return status(503, "Retry-After", "120"), nil }
		w.send("e", 1)
		w.see(func() {
			if len(w.parked) != 1 || w.parked[0].Attempt != 1 || w.parked[0].LastStatus != 503 {
				t.Fatalf("parked %+v", w.parked)
			}
			if due := time.Until(w.parked[0].NotBefore); due != 2*time.Minute {
				t.Errorf("due in %s, want the Retry-After", due)
			}
			if a := w.logged[0]; a.Outcome != schemas.OutcomeRetry || a.Number != 1 || a.NextTry.IsZero() {
				t.Errorf("attempt record %+v", a)
			}
		})
	})
}

func TestConcurrencyGrowsWithProofAndNeverExceedsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", func(e *Endpoint) { e.MaxInFlight = 6 })
		w.answer = func(*http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			return status(200), nil
		}
		w.send("e", 60)
		time.Sleep(time.Second)
		w.see(func() {
			if w.most["e"] != 6 {
				t.Errorf("at most %d at once, want the limit of 6", w.most["e"])
			}
			if first, second := w.posts[0].at, w.posts[1].at; second.Sub(first) < 10*time.Millisecond {
				t.Error("an endpoint that has proven nothing got two requests at once")
			}
			if len(w.done) != 60 {
				t.Errorf("%d done, want 60", len(w.done))
			}
		})
	})
}

func TestMaxInFlightOneKeepsTheOrderOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", func(e *Endpoint) { e.MaxInFlight = 1 })
		w.send("e", 50)
		w.see(func() {
			for i, b := range w.bodies("e") {
				if b != strconv.Itoa(i) {
					t.Fatalf("POST %d was record %s", i, b)
				}
			}
		})
	})
}

func TestAnEndpointThatHangsCostsOneSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{MaxInFlight: 8})
		w.answer = func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/bad" {
				return hang(r)
			}
			return status(200), nil
		}
		w.endpoint("bad")
		w.endpoint("good")
		w.send("bad", 100)
		w.send("good", 100)
		w.see(func() {
			if w.most["bad"] != 1 {
				t.Errorf("%d requests open at the endpoint that hangs, want 1", w.most["bad"])
			}
			if len(w.bodies("good")) != 100 {
				t.Errorf("%d of 100 reached the good one", len(w.bodies("good")))
			}
		})
	})
}

func TestEndpointsThatHangTakeAtMostHalfOfTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{MaxInFlight: 8})
		w.answer = func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/good" {
				return status(200), nil
			}
			return hang(r)
		}
		w.endpoint("good")
		w.send("good", 1)
		synctest.Wait()
		for i := range 20 {
			w.endpoint("bad" + strconv.Itoa(i))
			w.send("bad"+strconv.Itoa(i), 3)
		}
		w.send("good", 50)
		w.see(func() {
			if n := len(w.bodies("good")); n != 51 {
				t.Errorf("%d of 51 reached the good one while 20 others hang", n)
			}
			if len(w.posts)-51 != 4 {
				t.Errorf("%d requests to those that hang, want half of 8", len(w.posts)-51)
			}
		})
	})
}

func TestACopyOfAnAttemptIsDroppedAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		first := schemas.Delivery{
			EndpointID: "e", Event: schemas.Event{ID: "1", Source: "shop"}, Enqueued: time.Now(),
			Origin: schemas.Origin{Topic: "orders", Offset: 7},
		}
		w.send("e", 2, first.Headers()...)
		w.see(func() {
			if len(w.posts) != 1 || len(w.done) != 2 {
				t.Fatalf("%d POSTs and %d done, want 1 and 2", len(w.posts), len(w.done))
			}
			if got := []schemas.Outcome{w.logged[0].Outcome, w.logged[1].Outcome}; !slices.Contains(got, schemas.OutcomeDuplicate) {
				t.Errorf("outcomes %v, want one duplicate", got)
			}
		})
	})
}

func TestAMisroutedRecordIsForwardedOnceAndThenWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		var again []bool
		w.d.Hooks.Misrouted = func(more bool) { again = append(again, more) }
		w.endpoint("e")
		w.home = 5
		w.send("e", 1)
		forwarded := []schemas.Header{
			{Key: schemas.HeaderOrigin, Value: []byte("webhooks.deliveries-00000000-0-0")},
			{Key: schemas.HeaderForwards, Value: []byte("1")},
		}
		w.send("e", 1, forwarded...)
		tomorrow := time.Now().Add(24 * time.Hour)
		w.send("e", 1, append(forwarded, schemas.Header{Key: schemas.HeaderNotBefore, Value: strconv.AppendInt(nil, tomorrow.UnixMilli(), 10)})...)
		w.see(func() {
			if len(w.posts) != 0 || len(w.forward) != 1 || len(w.parked) != 2 || len(w.done) != 3 {
				t.Fatalf("%d POSTs, %d forwarded, %d parked, done %v", len(w.posts), len(w.forward), len(w.parked), w.done)
			}
			if !slices.Equal(again, []bool{false, true, true}) {
				t.Errorf("forwarded before: %v", again)
			}
			if got, want := w.parked[0].NotBefore, time.Now().Add(misroutedWait); !got.Equal(want) {
				t.Errorf("it waits until %s, want %s", got, want)
			}
			if got := w.parked[1].NotBefore; !got.Equal(tomorrow.Truncate(time.Millisecond)) {
				t.Errorf("one that is scheduled for %s waits until %s", tomorrow, got)
			}
		})
	})
}

func TestAnUnknownEndpointIsDecidedBehindTheBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.barrier = context.DeadlineExceeded
		w.send("new", 3)
		w.see(func() {
			if len(w.parked)+len(w.letters)+len(w.done) != 0 {
				t.Fatal("something was decided although the registry did not answer")
			}
		})
		w.endpoint("new")
		w.mu.Lock()
		w.barrier = nil
		w.mu.Unlock()
		time.Sleep(time.Second)
		w.see(func() {
			if len(w.posts) != 3 {
				t.Errorf("%d of 3 delivered after the endpoint became known", len(w.posts))
			}
		})
	})
}

func TestAnEndpointThatStaysUnknownIsParkedThenDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.send("nobody", 1)
		time.Sleep(11 * time.Minute)
		w.see(func() {
			if len(w.parked) != 1 || w.parked[0].Attempt != 0 {
				t.Fatalf("parked %+v", w.parked)
			}
		})
		old := w.parked[0].Headers()
		w.send("nobody", 1, old...)
		w.see(func() {
			if len(w.letters) != 1 || w.letters[0].Reason != schemas.ReasonEndpointUnknown {
				t.Fatalf("letters %+v", w.letters)
			}
		})
	})
}

func TestDisabledAndDeletedEndpointsEndAsDeadLetters(t *testing.T) {
	for state, reason := range map[schemas.EndpointState]schemas.Reason{
		schemas.StateDisabled: schemas.ReasonEndpointDisabled, schemas.StateDeleted: schemas.ReasonEndpointDeleted,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.endpoint("e", func(e *Endpoint) { e.State = state })
			w.send("e", 4)
			w.see(func() {
				if len(w.posts) != 0 || len(w.letters) != 4 || w.letters[0].Reason != reason || len(w.done) != 4 {
					t.Fatalf("%s: %d POSTs, %d letters, done %v", state, len(w.posts), len(w.letters), w.done)
				}
			})
		})
	}
}

func TestGoneDisablesTheEndpointUntilItsConfigurationIsNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.answer = func(*http.Request) (*http.Response, error) { return status(410), nil }
		w.send("e", 1)
		synctest.Wait()
		w.send("e", 2)
		w.see(func() {
			reasons := []schemas.Reason{w.letters[0].Reason, w.letters[1].Reason, w.letters[2].Reason}
			want := []schemas.Reason{schemas.ReasonGone, schemas.ReasonEndpointDisabled, schemas.ReasonEndpointDisabled}
			if !slices.Equal(reasons, want) || len(w.posts) != 1 {
				t.Fatalf("reasons %v after %d POSTs", reasons, len(w.posts))
			}
			w.answer = func(*http.Request) (*http.Response, error) { return status(200), nil }
		})
		w.endpoint("e", func(e *Endpoint) { e.Version = 2 })
		w.send("e", 1)
		w.see(func() {
			if len(w.posts) != 2 {
				t.Error("a newer configuration did not enable it")
			}
		})
	})
}

func TestTooManyRequestsPausesTheWholeLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", func(e *Endpoint) { e.MaxInFlight = 1 })
		w.answer = func(*http.Request) (*http.Response, error) { return status(429, "Retry-After", "60"), nil }
		w.send("e", 50)
		w.see(func() {
			if len(w.posts) != 1 {
				t.Fatalf("%d POSTs within the pause", len(w.posts))
			}
			w.answer = func(*http.Request) (*http.Response, error) { return status(200), nil }
		})
		time.Sleep(59 * time.Second)
		w.see(func() {
			if len(w.posts) != 1 {
				t.Errorf("%d POSTs before the pause ended", len(w.posts))
			}
		})
		time.Sleep(2 * time.Second)
		w.see(func() {
			if len(w.posts) != 50 || len(w.parked) != 1 {
				t.Errorf("%d POSTs and %d parked after the pause, want 50 and 1", len(w.posts), len(w.parked))
			}
		})
	})
}

func TestARateLimitHoldsOverEveryWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", func(e *Endpoint) { e.RateLimit = &schemas.RateLimit{Rate: 10, Burst: 3} })
		w.send("e", 100)
		time.Sleep(20 * time.Second)
		w.see(func() {
			if len(w.posts) != 100 {
				t.Fatalf("%d of 100 in 20 s at 10/s", len(w.posts))
			}
			for i := range w.posts {
				n := 0
				for _, p := range w.posts[i:] {
					if p.at.Sub(w.posts[i].at) < time.Second {
						n++
					}
				}
				if n > 13 {
					t.Fatalf("%d requests within a second, want at most rate + burst", n)
				}
			}
		})
	})
}

func TestARevokeDropsWhatIsQueuedAndWaitsForWhatHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", func(e *Endpoint) { e.MaxInFlight = 1 })
		w.answer = func(*http.Request) (*http.Response, error) { time.Sleep(3 * time.Second); return status(200), nil }
		w.send("e", 5)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		before := time.Now()
		w.p.Drain(ctx)
		if took := time.Since(before); took != 3*time.Second {
			t.Errorf("Drain took %s, want the open attempt's 3 s", took)
		}
		w.see(func() {
			if !slices.Equal(w.done, []int64{0}) || !slices.Equal(sorted(w.givenUp), []int64{1, 2, 3, 4}) {
				t.Errorf("done %v, given up %v", w.done, w.givenUp)
			}
		})
	})
}

func TestAShutdownInterruptsWhatHangsWithoutCountingIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e", func(e *Endpoint) { e.Timeout = time.Minute })
		w.answer = hang
		w.send("e", 2)
		synctest.Wait()
		w.d.BeginShutdown(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		w.p.Drain(ctx)
		w.see(func() {
			if len(w.done)+len(w.parked)+len(w.logged) != 0 || len(w.givenUp) != 2 {
				t.Errorf("done %v, parked %d, logged %d, given up %v", w.done, len(w.parked), len(w.logged), w.givenUp)
			}
		})
	})
}

// A rolling deploy: another member joins while this process winds up, and takes a
// partition away that has five seconds to go.
func TestARevokeDuringAShutdownCutsNoOtherPartitionsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.answers(func(*http.Request) (*http.Response, error) { time.Sleep(10 * time.Second); return status(200), nil })
		other := w.d.Assign(t.Context(), 1, w)
		w.send("e", 1)
		synctest.Wait()
		w.d.BeginShutdown(30 * time.Second)
		go func() {
			five, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			other.Drain(five)
		}()
		budget, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		w.p.Drain(budget)
		w.see(func() {
			if !slices.Equal(w.done, []int64{0}) {
				t.Errorf("done %v, given up %v", w.done, w.givenUp)
			}
		})
	})
}

func TestNoPostBeginsWhileTheLeaseIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.owned.Store(false)
		w.send("e", 3)
		time.Sleep(time.Second)
		w.see(func() {
			if len(w.posts) != 0 {
				t.Fatalf("%d POSTs without a lease", len(w.posts))
			}
		})
		w.owned.Store(true)
		time.Sleep(time.Second)
		w.see(func() {
			if len(w.posts) != 3 {
				t.Errorf("%d of 3 POSTs once the lease was fresh", len(w.posts))
			}
		})
	})
}

func TestAFailureDuringOurOwnSleepIsNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.frozen.Store(true)
		w.answer = func(*http.Request) (*http.Response, error) { return nil, errRefused }
		w.send("e", 1)
		w.see(func() {
			if len(w.parked)+len(w.logged) != 0 {
				t.Error("an attempt was charged although the process stood still")
			}
			w.answer = func(*http.Request) (*http.Response, error) { return status(200), nil }
		})
		time.Sleep(2 * time.Second)
		w.see(func() {
			if len(w.done) != 1 || w.logged[0].Number != 1 {
				t.Errorf("done %v, log %+v", w.done, w.logged)
			}
		})
	})
}

func TestAnAnswerCountsThoughWeStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.frozen.Store(true)
		w.answer = func(*http.Request) (*http.Response, error) { return status(500), nil }
		w.send("e", 1)
		w.see(func() {
			if len(w.posts) != 1 || len(w.parked) != 1 {
				t.Errorf("%d POSTs, %d parked; the receiver has answered, want 1 of each", len(w.posts), len(w.parked))
			}
		})
	})
}

func TestAMalformedRecordIsBuriedAndThePartitionGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		w.send("not an id", 1)
		w.p.Take(t.Context(), []schemas.Record{{Topic: "webhooks.deliveries", Offset: w.offset, Key: []byte("e"), Timestamp: time.Now()}})
		w.offset++
		w.send("e", 1)
		w.see(func() {
			if len(w.letters) != 2 || w.letters[0].Reason != schemas.ReasonMalformed || len(w.posts) != 1 || len(w.done) != 3 {
				t.Errorf("%d letters, %d POSTs, done %v", len(w.letters), len(w.posts), w.done)
			}
		})
	})
}

func TestAProducersNotBeforeIsParkedWithoutAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.endpoint("e")
		at := func(d time.Duration) schemas.Header {
			return schemas.Header{Key: schemas.HeaderNotBefore, Value: []byte(strconv.FormatInt(time.Now().Add(d).UnixMilli(), 10))}
		}
		w.send("e", 1, at(time.Hour))
		w.send("e", 1, at(1000*time.Hour))
		w.send("e", 1, at(-time.Hour))
		w.see(func() {
			if len(w.parked) != 1 || w.parked[0].Attempt != 0 || len(w.letters) != 1 || len(w.posts) != 1 {
				t.Errorf("%d parked, %d letters, %d POSTs", len(w.parked), len(w.letters), len(w.posts))
			}
		})
	})
}

func TestIntakeWaitsWhileAPartitionIsFullAndNoLaneStandsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{PartitionOffsets: 10})
		w.endpoint("a", one)
		w.endpoint("b", one)
		w.answers(func(*http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			return status(200), nil
		})
		before := time.Now()
		for range 10 {
			w.send("a", 1)
			w.send("b", 1)
		}
		if took := time.Since(before); took != 500*time.Millisecond {
			t.Errorf("20 records were taken in after %s, want 500 ms", took)
		}
		time.Sleep(time.Minute)
		w.see(func() {
			if len(w.topics.hold) != 0 {
				t.Errorf("%d were put on hold for want of a faster process", len(w.topics.hold))
			}
		})
	})
}

// No lane stands out among those that hang alike, and no record of theirs is read
// that would show that they have come to be too long.
func TestEndpointsThatHangAlikeMakeRoomForOthersBeforeTheirTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hanging = 20
		w := newWorld(t, Config{QueuedBytes: 10 * hanging * itemOverhead})
		w.answers(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/well" {
				return status(200), nil
			}
			return hang(r)
		})
		w.endpoint("well")
		for i := range hanging {
			w.endpoint("hangs" + strconv.Itoa(i))
		}
		before := time.Now()
		for range 50 {
			for i := range hanging {
				w.send("hangs"+strconv.Itoa(i), 1)
			}
		}
		w.send("well", 1)
		if took := time.Since(before); took > 10*time.Second {
			t.Errorf("the one that is well was read after %s", took)
		}
		w.see(func() {
			if len(w.bodies("well")) != 1 {
				t.Error("the one that is well was not sent to")
			}
		})
	})
}

func TestTheLongestLaneMakesRoomForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{PartitionOffsets: 10})
		w.endpoint("long", one)
		for _, id := range []string{"a", "b", "c", "d"} {
			w.endpoint(id)
		}
		w.answers(func(*http.Request) (*http.Response, error) {
			time.Sleep(100 * time.Millisecond)
			return status(200), nil
		})
		before := time.Now()
		w.send("long", 30)
		for _, id := range []string{"a", "b", "c", "d"} {
			w.send(id, 1)
		}
		if took := time.Since(before); took > time.Second {
			t.Errorf("the others were read after %s", took)
		}
		time.Sleep(time.Minute)
		w.see(func() {
			if len(w.topics.hold) == 0 || len(w.posts) != 34 {
				t.Errorf("%d on hold, %d POSTs", len(w.topics.hold), len(w.posts))
			}
		})
	})
}
