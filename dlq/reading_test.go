package dlq

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestWhatIsSaidOfAReadingThatWasEndedCountsPartitionsThatWereNotBegun(t *testing.T) {
	at := time.Now()
	read, part, none := &scan{back: at.Add(-time.Hour)}, &scan{back: at}, &scan{}
	read.cover.Complete = true
	if c := total([]*scan{read, part}); c.Complete || c.Partitions != 1 || !c.BackTo.Equal(at) {
		t.Errorf("%+v", c)
	}
	if c := total([]*scan{read, part, none}); !c.BackTo.IsZero() {
		t.Errorf("everything since %s was seen, though of one partition nothing was", c.BackTo)
	}
}

func TestAListThatIsEndedEarlySaysHowFarItHasShown(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2", "ep_3", "ep_4", "ep_5")
	for range 20 { // each at a time of its own
		w.many(100, "ep_1", "ep_2", "ep_3", "ep_4", "ep_5")
	}
	ctx, cancel := context.WithCancel(w.ctx())
	defer cancel()
	shown := map[string]bool{}
	cover, err := w.store.List(ctx, Filter{}, func(e *Entry) error {
		shown[e.Key()] = true
		if len(shown) == 10 {
			cancel()
		}
		return ctx.Err()
	})
	if !errors.Is(err, ErrPartial) || cover.Complete {
		t.Fatalf("%+v %v", cover, err)
	}
	if _, err := w.store.List(w.ctx(), Filter{}, func(e *Entry) error {
		if !cover.BackTo.IsZero() && e.Written.After(cover.BackTo) && !shown[e.Key()] {
			t.Fatalf("%s was written at %s, after %s, and is not shown", e.Key(), e.Written, cover.BackTo)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestAReadingTellsHowFarItHasCome(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2", "ep_3")
	w.many(300, "ep_1", "ep_2", "ep_3")
	if _, _, err := w.store.Count(w.ctx(), Filter{}); err != nil {
		t.Fatal(err)
	}
	if r := w.store.Reading(); r.Done != 300 || r.Of != 300 {
		t.Errorf("%+v", r)
	}
}
