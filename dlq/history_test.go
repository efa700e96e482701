package dlq

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestResultsSayWhatTheLastAttemptCameTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r results
		want, last := map[uint64]result{}, map[uint64]time.Time{}
		for range rapid.IntRange(0, 2000).Draw(t, "attempts") {
			h := rapid.Uint64Range(0, 300).Draw(t, "delivery")<<3 | rapid.Uint64Range(0, 2).Draw(t, "table")<<56 | rapid.Uint64Range(0, 7).Draw(t, "low bits")
			came := result(rapid.Uint64Range(1, 3).Draw(t, "outcome") | 4*rapid.Uint64Range(0, 1).Draw(t, "home"))
			made := time.Unix(rapid.Int64Range(1, 20).Draw(t, "made"), 0)
			r.note(h, came, made)
			switch was := want[h&hashBits]; {
			case was&resultOutcome == resultDelivered:
			case came&resultOutcome == resultDelivered, came&resultHome > was&resultHome, came&was&resultHome > 0,
				came&resultHome == was&resultHome && !made.Before(last[h&hashBits]):
				want[h&hashBits], last[h&hashBits] = came, made
			}
		}
		for d := range uint64(300) {
			for table := range uint64(3) {
				if h := d<<3 | table<<56; r.of(h) != want[h] {
					t.Fatalf("%x: %d, want %d", h, r.of(h), want[h])
				}
			}
		}
	})
}

// Partitions were raised twice, and what tells of the delivery stands in two former ones.
func TestOfTwoFormerPartitionsTheLaterAttemptCountsWhoeverReadFirst(t *testing.T) {
	noon := time.Now()
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		var r results
		for _, i := range order {
			r.note(8, []result{resultDead, resultRetrying}[i], noon.Add(time.Duration(i)*time.Hour))
		}
		if r.of(8) != resultRetrying {
			t.Errorf("read in the order %v: %d", order, r.of(8))
		}
	}
}

// Half of the deliveries were delivered, a quarter is missing, a quarter was sent again
// and not attempted yet.
func TestAReconciliationTakesFewBytesADelivery(t *testing.T) { reconcile(t, 40_000) }

func TestSoakAReconciliationOfAMillionDeliveries(t *testing.T) {
	testkit.SoakBudget(t)
	reconcile(t, 1_000_000)
}

func reconcile(t *testing.T, n int) {
	w := newWorld(t)
	fast, err := kafka.NewWriter(w.cfg, uncompressed, kafka.WithLinger(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fast.Close(w.within(10 * time.Second)) })
	since := time.Now().Add(-time.Minute)
	for i := range n {
		d := schemas.Delivery{EndpointID: fmt.Sprintf("ep_%d", i%37), Event: schemas.Event{ID: "e", Source: "/test"}, Payload: []byte("x"),
			Origin: schemas.Origin{Topic: "webhooks.orders", TopicID: [4]byte{1, 2, 3, 4}, Offset: int64(i)}}
		m := kafka.Message{Topic: w.names.Deliveries(), Partition: partitionOf(d.EndpointID), Key: []byte(d.EndpointID), Value: d.Payload, Headers: d.Headers()}
		fast.Write(m, nil)
		switch i % 4 {
		case 0, 1:
			a := schemas.Attempt{DeliveryID: d.ID(), EndpointID: d.EndpointID, Outcome: schemas.OutcomeDelivered, Number: 1}
			fast.Write(kafka.Message{Topic: w.names.Attempts(), Partition: m.Partition, Key: m.Key, Value: schemas.AppendAttempt(nil, &a)}, nil)
		case 2:
			again := again(&d)
			m.Headers = again.Headers()
			fast.Write(m, nil)
		}
		if i%20_000 == 0 {
			if err := fast.Flush(w.ctx()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := fast.Flush(w.ctx()); err != nil {
		t.Fatal(err)
	}
	w.dispatched()
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // what is in pools goes at the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	past := Past{Since: since, Missing: true}
	if _, err := w.store.selectPast(w.ctx(), past); err != nil { // what a first reading makes besides is not counted
		t.Fatal(err)
	}
	before := heap()
	r, err := w.store.selectPast(w.ctx(), past)
	if err != nil {
		t.Fatal(err)
	}
	took := heap() - before
	all := Gap{}
	for _, g := range r.gaps {
		all.Deliveries, all.Delivered, all.Missing, all.Held = all.Deliveries+g.Deliveries, all.Delivered+g.Delivered, all.Missing+g.Missing, all.Held+g.Held
	}
	if q := int64(n / 4); all != (Gap{Deliveries: 4 * q, Delivered: 2 * q, Missing: q, Held: q}) {
		t.Errorf("%+v", all)
	}
	t.Logf("%.1f bytes a delivery of %d", float64(took)/float64(n), n)
	if took > 32*int64(n) {
		t.Errorf("%d bytes for %d deliveries", took, n)
	}
}
