package retrytopics

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

func TestChooseIsTheLargestTierThatIsNotLonger(t *testing.T) {
	tiers := Tiers(schemas.DefaultTiers())
	for _, c := range []struct{ remaining, want time.Duration }{
		{-time.Hour, 0}, {0, 0}, {9 * time.Second, 0}, {10 * time.Second, 10 * time.Second},
		{59 * time.Second, 10 * time.Second}, {time.Minute, time.Minute}, {29 * time.Minute, 5 * time.Minute},
		{24*time.Hour - 1, 12 * time.Hour}, {24 * time.Hour, 24 * time.Hour}, {1000 * time.Hour, 24 * time.Hour},
	} {
		if got := tiers.Choose(c.remaining); got != c.want {
			t.Errorf("%v remain: tier %v, want %v", c.remaining, got, c.want)
		}
	}
}

func TestNewTiersRefusesSetsThatCannotWait(t *testing.T) {
	for _, bad := range [][]time.Duration{
		nil, {0}, {time.Second}, {0, 11 * time.Second}, {0, time.Second, 1500 * time.Millisecond},
		{-time.Second, 0, time.Second}, {0, time.Second, 1000 * time.Hour},
	} {
		if got, err := NewTiers(bad...); err == nil {
			t.Errorf("%v: accepted as %v", bad, got)
		}
	}
	got, err := NewTiers(time.Minute, 0, 10*time.Second, time.Minute)
	if want := (Tiers{0, 10 * time.Second, time.Minute}); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if _, err := NewTiers(Tiers(schemas.DefaultTiers())...); err != nil {
		t.Error(err)
	}
}

func TestTierTopicsAreReadBackWhateverIsConfigured(t *testing.T) {
	names := schemas.Names{Prefix: schemas.DefaultPrefix}
	for _, d := range append(Tiers(schemas.DefaultTiers()), 3*time.Second, 90*time.Minute, 61*time.Second, 7*24*time.Hour) {
		if got, ok := ParseTier(names, names.Retry(d)); !ok || got != d {
			t.Errorf("%s: %v, %v, want %v", names.Retry(d), got, ok, d)
		}
	}
	for _, topic := range []string{"webhooks.deliveries", "webhooks.retry.", "webhooks.retry.s", "webhooks.retry.5d",
		"webhooks.retry.-5s", "other.retry.5s", "webhooks.retry.99999999999h", "webhooks.retry.2147483647h"} {
		if d, ok := ParseTier(names, topic); ok {
			t.Errorf("%s: read as %v", topic, d)
		}
	}
}

// walk lets a delivery wait in the tiers, each hop late by what lag says, and
// returns the tier writes and when it left for memory.
func walk(tiers Tiers, wait time.Duration, lag func() time.Duration) (writes int, left time.Duration) {
	at := time.Duration(0)
	for first := true; first || wait-at > Near; first = false {
		writes++
		at += tiers.Choose(wait-at) + lag()
	}
	return writes, at
}

func TestCostOfTheScheduleInTierWrites(t *testing.T) {
	p := compile(t, schemas.Retry{})
	tiers := Tiers(schemas.DefaultTiers())
	const n = 5000
	// 100 ms a hop: the wait of a fetch, half of the longest.
	lag := func() time.Duration { return 100 * time.Millisecond }
	var total float64
	for i, s := range p.steps {
		sum := 0
		for j := range n {
			w, _ := walk(tiers, s.delay+s.jitter(JitterKey{strconv.Itoa(j), 0, i + 1}), lag)
			sum += w
		}
		mean := float64(sum) / n
		total += mean
		t.Logf("step %v: %.2f tier writes", s.delay, mean)
		if s.delay == 24*time.Hour && mean > 5 {
			t.Errorf("a step of 24h costs %.2f tier writes, more than 5", mean)
		}
	}
	t.Logf("whole schedule: %.2f tier writes", total)
	if total > 30 {
		t.Errorf("the whole schedule costs %.2f tier writes, more than 30", total)
	}
}

func TestPropertyTiersNeverMakeADeliveryLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		delays := []time.Duration{0, time.Duration(rapid.IntRange(1, 10).Draw(t, "small")) * time.Second}
		for _, s := range rapid.SliceOfN(rapid.IntRange(10, 24*3600), 0, 8).Draw(t, "tiers") {
			delays = append(delays, time.Duration(s)*time.Second)
		}
		tiers, err := NewTiers(delays...)
		if err != nil {
			t.Fatal(err)
		}
		wait := time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "wait"))
		if a, b := tiers.Choose(wait), tiers.Choose(wait+time.Second); a > b {
			t.Fatalf("a longer wait chose the shorter tier: %v, %v", a, b)
		}
		at := time.Duration(0)
		for first := true; first || wait-at > Near; first = false {
			tier := tiers.Choose(wait - at)
			if tier > wait-at {
				t.Fatalf("tier %v with %v left", tier, wait-at)
			}
			if tier == 0 && wait-at > Near {
				t.Fatalf("no rest with %v left", wait-at)
			}
			at += tier
		}
		writes, left := walk(tiers, wait, func() time.Duration { return 0 })
		if left != at || (wait > 0 && writes != tiers.Writes(wait)) {
			t.Fatalf("Writes says %d, the walk took %d", tiers.Writes(wait), writes)
		}
	})
}
