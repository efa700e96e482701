package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestTheWorstAreThoseThatMuchWaitsForThenThoseThatFailedLongest(t *testing.T) {
	var load Load
	since := time.Now()
	for i := range 100 {
		load.consider(Worst{Endpoint: fmt.Sprintf("fails%02d", i), Since: since.Add(time.Duration(i) * time.Second), Why: "failing"})
		load.consider(Worst{Endpoint: fmt.Sprintf("waits%02d", i), Waiting: i % 10, Why: "queued"})
	}
	if len(load.Worst) != MostWorst {
		t.Fatalf("%d", len(load.Worst))
	}
	for i, w := range load.Worst {
		if want := 9 - i/10; w.Waiting != want {
			t.Errorf("rank %d: %d wait, want %d", i+1, w.Waiting, want)
		}
	}
	load = Load{}
	for i := range 100 {
		load.consider(Worst{Endpoint: fmt.Sprintf("fails%02d", (i*37)%100), Since: since.Add(time.Duration((i*37)%100) * time.Second), Why: "failing"})
	}
	for i, w := range load.Worst {
		if want := fmt.Sprintf("fails%02d", i); w.Endpoint != want {
			t.Errorf("rank %d: %s, want %s", i+1, w.Endpoint, want)
		}
	}
}

// A scrape must not keep anybody from sending for as long as it looks.
func TestLoadLetsOthersHaveTheLockInBetween(t *testing.T) {
	d := New(Config{}, Deps{})
	p := &Partition{d: d}
	const lanes = 5 * lookTurn
	for i := range lanes {
		d.lanes.lane(fmt.Sprintf("ep%d", i), p, "")
	}
	rests := 0
	load := d.load(func() {
		rests++
		if !d.lanes.mu.TryLock() {
			t.Fatal("the lock is held")
		}
		defer d.lanes.mu.Unlock()
		delete(d.lanes.byID, fmt.Sprintf("ep%d", rests)) // lanes come and go meanwhile
		d.lanes.lane(fmt.Sprintf("late%d", rests), p, "")
	})
	if seen := load.Activities[LaneIdle]; rests < 4 || seen < lanes-rests || seen > lanes+rests {
		t.Errorf("%d lanes seen with %d rests", seen, rests)
	}
}

// BenchmarkLoad is what a scrape asks of a dispatcher with 50,000 active lanes.
func BenchmarkLoad(b *testing.B) {
	d := New(Config{}, Deps{})
	p := &Partition{d: d}
	for i := range 50_000 {
		l := d.lanes.lane(fmt.Sprintf("ep%d", i), p, "")
		l.ep = &Endpoint{ID: l.id, State: schemas.StateEnabled, Version: 1}
		if i%10 == 0 {
			l.episode.Attempts, l.episode.FailingSince = 1, time.Now()
		}
	}
	for b.Loop() {
		if load := d.Load(); load.Failing != 5_000 || len(load.Worst) != MostWorst {
			b.Fatal(load.Failing)
		}
	}
}
