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

// twoHolds is hold and health of two partitions.
type twoHolds [2]*memoryHold

func (t *twoHolds) TakeOver(ctx context.Context, p int32, owned func() bool) (Takeover, error) {
	return t[p].TakeOver(ctx, p, owned)
}

func (t *twoHolds) Append(p int32, claim int64, d *schemas.Delivery, acked func(int64)) {
	t[p].Append(p, claim, d, acked)
}

func (t *twoHolds) WriteHealth(p int32, claim int64, id string, h *schemas.Health, acked func()) {
	t[p].WriteHealth(p, claim, id, h, acked)
}

func (t *twoHolds) ReadHold(ctx context.Context, p int32, from int64, limit int) (HoldChunk, error) {
	return t[p].ReadHold(ctx, p, from, limit)
}

// The number of partitions was raised while an endpoint had deliveries on hold. What
// comes for it in its new partition must not make its old owner forget them.
func TestWhatStandsOnHoldOfAFormerPartitionIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := &memoryHold{health: map[string]schemas.Health{}}
		w := newWorldOn(t, Config{}, topics)
		w.endpoint("e", one)
		w.answer = func(*http.Request) (*http.Response, error) { return status(503, "Retry-After", "60"), nil }
		w.send("e", 50)
		time.Sleep(2 * time.Second)
		w.crash()

		log := &twoHolds{topics, {health: map[string]schemas.Health{}}}
		w2 := newWorldAt(t, Config{}, topics, log, 1)
		w2.endpoint("e", one)
		home := w2.d.Assign(t.Context(), 1, w2)
		want := numbers(1, 50)
		for i := 100; i < 110; i++ { // new ones, in the partition that is the endpoint's now
			body := strconv.Itoa(i)
			home.Take(t.Context(), []schemas.Record{{Topic: "webhooks.deliveries", Partition: 1, Offset: int64(i), Timestamp: time.Now(), Key: []byte("e"), Value: []byte(body)}})
			want = append(want, body)
		}
		time.Sleep(3 * time.Minute)
		w2.see(func() {
			got := w2.bodies("e")
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%d of %d were sent: %v", len(got), len(want), got)
			}
			if _, ok := topics.healthOf("e"); ok {
				t.Error("health of the former partition still speaks of the endpoint")
			}
		})
		drain, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		home.Drain(drain)
	})
}
