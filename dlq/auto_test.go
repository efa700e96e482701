//go:build !kafka

package dlq

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/testkit"
)

// On the embedded broker only: a real one writes the time of the append over ours.
func TestTheAutomaticRateGivesWayToLiveDeliveriesThatGrowOld(t *testing.T) {
	w := newWorld(t)
	oldest := func() time.Duration {
		t.Helper()
		age, err := w.store.oldestReady(w.ctx())
		if err != nil {
			t.Fatal(err)
		}
		return age
	}
	if age := oldest(); age != 0 {
		t.Fatalf("nothing is to be delivered, and the oldest is %s old", age)
	}
	const waits = 30 * time.Second
	testkit.Produce(t, testkit.NewClient(t, w.cfg.Brokers), &kgo.Record{
		Topic: w.names.Deliveries(), Key: []byte("ep"), Value: []byte("{}"), Timestamp: time.Now().Add(-waits),
	})
	age := oldest()
	if age < waits || age > waits+time.Minute {
		t.Fatalf("a delivery waits for %s, and the oldest is %s old", waits, age)
	}
	if r := adapted(400, age); r != 200 {
		t.Errorf("beside a delivery that waits for %s, 400/s became %g/s", age, r)
	}
	w.dispatched()
	if age := oldest(); age != 0 {
		t.Fatalf("all is delivered, and the oldest is %s old", age)
	}
	for _, c := range []struct {
		rate float64
		age  time.Duration
		want float64
	}{
		{400, 0, 500},
		{400, 3 * time.Second, 400}, // neither young nor old
		{autoMost, 0, autoMost},
		{autoLeast, time.Hour, autoLeast},
	} {
		if got := adapted(c.rate, c.age); got != c.want {
			t.Errorf("%g/s, oldest %s: %g/s, want %g/s", c.rate, c.age, got, c.want)
		}
	}
}
