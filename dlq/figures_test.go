package dlq

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestFiguresCountWhatIsOpen(t *testing.T) {
	w := newWorld(t)
	w.endpoint("ep_1", "ep_2", "ep_3")
	w.many(30, "ep_1", "ep_2", "ep_3")
	w.die(w.delivery("ep_1"), schemas.ReasonGone, time.Now())
	w.bury(w.written[0])
	w.flush()
	f, err := w.store.Figures(w.ctx(), []int32{0, 1, 2, 3, 99})
	if err != nil || f.Open[schemas.ReasonExhausted] != 29 || f.Open[schemas.ReasonGone] != 1 || time.Since(f.Oldest) > time.Minute {
		t.Errorf("%+v %v", f, err)
	}
	only, err := w.store.Figures(w.ctx(), []int32{partitionOf("ep_1")})
	if err != nil || only.Open[schemas.ReasonGone] != 1 || only.Open[schemas.ReasonExhausted] >= 29 {
		t.Errorf("%+v %v", only, err)
	}
	ctx, cancel := context.WithCancel(w.ctx())
	got := make(chan Figures, 1)
	var asked atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.store.Watch(ctx, func() []int32 {
			if asked.Add(1) == 1 {
				return nil // its partitions are not there yet
			}
			return []int32{0, 1, 2, 3}
		}, func(f Figures) { got <- f })
	}()
	if f := <-got; f.Partitions != 0 {
		t.Errorf("%+v", f)
	}
	if f := <-got; f.Open[schemas.ReasonExhausted] != 29 {
		t.Errorf("%+v", f)
	}
	cancel()
	<-done
}

// A process lives for months, and a topic's retention is changed meanwhile.
func TestFiguresTellTheRetentionAsItIsNow(t *testing.T) {
	w := newWorld(t)
	adm, err := w.cfg.NewAdmin()
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	for _, days := range []int{30, 10} {
		ms := strconv.Itoa(days * 24 * 60 * 60 * 1000)
		changed, err := adm.AlterTopicConfigs(w.ctx(), []kadm.AlterConfig{{Name: "retention.ms", Value: &ms}}, w.names.DLQ())
		if err != nil || changed[0].Err != nil {
			t.Fatalf("%+v %v", changed, err)
		}
		testkit.Eventually(t, 30*time.Second, func() string { // the broker hears of it from the controller
			if f, err := w.store.Figures(w.ctx(), nil); err != nil || f.Retention != time.Duration(days)*24*time.Hour {
				return fmt.Sprintf("%d days: %+v %v", days, f, err)
			}
			return ""
		})
	}
}
