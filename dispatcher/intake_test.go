package dispatcher

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

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
