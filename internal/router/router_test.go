package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/internal/budget"
	"github.com/milena-project/milena/schemas"
)

func TestEverySubscriberGetsOneDeliveryWithTheRecordsPlaceAsItsOrigin(t *testing.T) {
	w := newWorld()
	w.registry.match["shop/order.paid"] = []string{"a", "b"}
	w.intake.fanOut(t.Context(), []schemas.Record{event(7, "ce_type=order.paid", "ce_tenant=shop", "ce_id=1", "x=y")})
	if got, want := w.writer.ids(), []string{"orders-ab000000-3-7.a", "orders-ab000000-3-7.b"}; !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	if d := w.writer.all[1]; d.Event.Source != "orders" || d.Event.ID != "1" || string(d.Payload) != "{}" || len(d.Extra) != 1 {
		t.Errorf("%+v", d)
	}
	w.writer.ack(1)
	if len(w.answers.done) != 0 {
		t.Fatal("done before all of its deliveries were acknowledged")
	}
	w.writer.ack(0)
	if w.answers.done[7] != 1 || !slices.Equal(w.routed, []int{2}) {
		t.Errorf("%v %v", w.answers.done, w.routed)
	}
}

func TestWhatNobodySubscribesToIsCountedAndNotWritten(t *testing.T) {
	w := newWorld()
	w.registry.match["/order.paid"] = []string{"a"}
	w.intake.fanOut(t.Context(), []schemas.Record{event(0, "ce_type=order.paid", "ce_tenant=shop")})
	if len(w.writer.all) != 0 || w.nobody != 1 || w.answers.done[0] != 1 {
		t.Errorf("%d writes, %d unmatched, %v", len(w.writer.all), w.nobody, w.answers.done)
	}
}

// A compacted topic ends a key with a null value; it would be a dead letter for every
// row that is deleted.
func TestATombstoneOfACompactedSourceIsCountedAndPassedOver(t *testing.T) {
	ended := 0
	w := newWorld(func(c *Config) { c.Hooks.Tombstone = func() { ended++ } })
	w.registry.match["/event"] = []string{"a"}
	null := event(0, "x=y")
	null.Value = nil
	w.intake.fanOut(t.Context(), []schemas.Record{null})
	if len(w.writer.all) != 0 || w.nobody != 0 || ended != 1 || w.answers.done[0] != 1 {
		t.Errorf("%d writes, %d tombstones, %v", len(w.writer.all), ended, w.answers.done)
	}
}

func TestWhatCannotBeReadIsBuriedAndThePartitionGoesOn(t *testing.T) {
	w := newWorld()
	w.registry.match["/event"] = []string{"a"}
	null := event(0, "ce_id=1")
	null.Value = nil
	w.intake.fanOut(t.Context(), []schemas.Record{null, event(1)})
	if w.writer.reasons[0] != schemas.ReasonMalformed || w.writer.all[0].EndpointID != "" || w.writer.all[0].Error == "" {
		t.Fatalf("%v %+v", w.writer.reasons, w.writer.all[0])
	}
	if w.writer.reasons[1] != "" || len(w.answers.done) != 0 {
		t.Fatalf("%v %v", w.writer.reasons, w.answers.done)
	}
	w.writer.ack(0)
	w.writer.ack(1)
	if w.answers.done[0] != 1 || w.answers.done[1] != 1 {
		t.Errorf("%v", w.answers.done)
	}
}

func TestWhileTheRegistryIsSilentEventsWaitAndTheRouterIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.registry.match["/event"] = []string{"a"}
		w.registry.set(errors.New("no broker answers"))
		taken := make(chan struct{})
		go func() { defer close(taken); w.intake.fanOut(t.Context(), []schemas.Record{event(0)}) }()
		time.Sleep(time.Hour)
		if err := w.router.stuck(); err == nil || !strings.Contains(err.Error(), "no broker answers") {
			t.Errorf("stuck: %v", err)
		}
		if w.registry.matched != 0 || len(w.writer.all) != 0 || len(w.answers.done)+len(w.answers.gaveUp) != 0 {
			t.Errorf("something happened: %+v %+v", w.writer.reasons, w.answers)
		}
		w.registry.set(nil)
		<-taken
		if err := w.router.stuck(); err != nil || len(w.writer.all) != 1 {
			t.Errorf("%v, %d writes", err, len(w.writer.all))
		}
		w.writer.ack(0)
	})
}

func TestAPartitionThatGoesWhileTheRegistryIsSilentGivesAllUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.registry.set(errors.New("no broker answers"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		w.intake.fanOut(ctx, []schemas.Record{event(0), event(1)})
		if w.answers.gaveUp[0] != 1 || w.answers.gaveUp[1] != 1 || w.router.stuck() != nil {
			t.Errorf("%v %v", w.answers.gaveUp, w.router.stuck())
		}
	})
}

func TestWritesOnTheirWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(func(c *Config) { c.InFlightBytes = 10 * (writeOverhead + 2) })
		for i := range 100 {
			w.registry.match["/event"] = append(w.registry.match["/event"], fmt.Sprint("ep", i))
		}
		taken := make(chan struct{})
		go func() { defer close(taken); w.intake.fanOut(t.Context(), []schemas.Record{event(0)}) }()
		for acked := 0; acked < 100; {
			synctest.Wait()
			n := len(w.writer.ids())
			if n-acked > 10 {
				t.Fatalf("%d writes are on their way", n-acked)
			}
			for ; acked < n; acked++ {
				w.writer.ack(acked)
			}
		}
		<-taken
		if w.answers.done[0] != 1 {
			t.Errorf("%v", w.answers.done)
		}
	})
}

func TestABarrierIsSharedByAllThatCameWhileTheLastOneWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		slow := &slowRegistry{endpointsOf: w.registry}
		w.router.cfg.Registry = slow
		w.registry.match["/event"] = []string{"a"}
		ctx, cancel := context.WithCancel(t.Context())
		go w.intake.run(ctx)
		for i := range int64(1000) { // a small fetch each millisecond
			w.intake.Take(ctx, []schemas.Record{event(i)})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		if n := len(w.writer.ids()); n != 1000 || w.registry.asked > 25 {
			t.Errorf("%d writes after %d barriers", n, w.registry.asked)
		}
		cancel()
		w.intake.Drain(ctx)
	})
}

// slowRegistry answers 20 barriers a second.
type slowRegistry struct{ *endpointsOf }

func (s *slowRegistry) Barrier(ctx context.Context) error {
	time.Sleep(50 * time.Millisecond)
	return s.endpointsOf.Barrier(ctx)
}

func TestAFullQueueKeepsTakeWaitingAndEndsWithThePartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.registry.set(errors.New("no broker answers"))
		ctx, cancel := context.WithCancel(t.Context())
		go w.intake.run(ctx)
		big := func(offset int64) schemas.Record {
			rec := event(offset)
			rec.Value = make([]byte, queueBytes*2/3)
			return rec
		}
		w.intake.Take(ctx, []schemas.Record{big(0)}) // is being routed
		synctest.Wait()
		w.intake.Take(ctx, []schemas.Record{big(1)}) // is queued
		time.AfterFunc(time.Hour, cancel)
		start := time.Now()
		w.intake.Take(ctx, []schemas.Record{big(2)})
		if waited := time.Since(start); waited != time.Hour {
			t.Errorf("took a record after %s although the queue is full", waited)
		}
		w.intake.Drain(t.Context())
		for offset := range int64(3) {
			if w.answers.gaveUp[offset] != 1 {
				t.Errorf("record %d was given up %d times", offset, w.answers.gaveUp[offset])
			}
		}
	})
}

// Whatever order acknowledgements come in and whenever the partition goes: each record
// is answered once, and done only if all of it was acknowledged.
func TestEveryRecordIsAnsweredOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		records := rapid.IntRange(1, 8).Draw(rt, "records")
		fans := rapid.SliceOfN(rapid.IntRange(0, 4), records, records).Draw(rt, "endpoints")
		stopAt := rapid.IntRange(1, 20).Draw(rt, "writes before the partition goes")
		atOnce := rapid.Bool().Draw(rt, "it goes at once")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := newWorld()
		w.router.cfg.Writer = &stopsAfter{written: w.writer, left: stopAt, stop: cancel}
		w.router.inFlight = budget.New(1) // one write at a time: whoever waits sees the end of ctx
		go w.intake.run(ctx)
		for i, n := range fans {
			kind := fmt.Sprint("t", i)
			w.registry.mu.Lock()
			for e := range n {
				w.registry.match["/"+kind] = append(w.registry.match["/"+kind], fmt.Sprint("e", e))
			}
			w.registry.mu.Unlock()
			w.intake.Take(ctx, []schemas.Record{event(int64(i), "ce_type="+kind)})
		}
		acked, perRecord := 0, map[int64]int{}
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			if atOnce {
				cancel()
			}
			w.intake.Drain(t.Context())
		}()
		for running := true; running; {
			select {
			case <-drained:
				running = false
			default:
			}
			for ; acked < len(w.writer.ids()); acked++ {
				w.writer.mu.Lock()
				perRecord[w.writer.all[acked].Origin.Offset]++
				w.writer.mu.Unlock()
				w.writer.ack(acked)
			}
			if w.answers.count() == records {
				cancel()
			}
		}
		for i, n := range fans {
			done, gaveUp := w.answers.done[int64(i)], w.answers.gaveUp[int64(i)]
			if done+gaveUp != 1 {
				rt.Fatalf("record %d: done %d times, given up %d times", i, done, gaveUp)
			}
			if done == 1 && perRecord[int64(i)] != n {
				rt.Fatalf("record %d is done after %d of %d writes", i, perRecord[int64(i)], n)
			}
		}
	})
}

// stopsAfter ends the partition after a number of writes.
type stopsAfter struct {
	*written
	left int
	stop func()
}

func (s *stopsAfter) Deliver(d *schemas.Delivery, acked func()) {
	s.written.Deliver(d, acked)
	if s.left--; s.left <= 0 {
		s.stop()
	}
}

func TestMappingFillsInWhatARecordDoesNotSay(t *testing.T) {
	m := Mapping{
		Types:   map[string]string{"orders": "header:kind"},
		Tenants: map[string]string{"orders": "shop"},
	}
	structured := event(0, "content-type=application/cloudevents+json", "kind=no")
	structured.Value = []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"event","tenant":"bank","data":{}}`)
	for name, c := range map[string]struct {
		rec          schemas.Record
		kind, tenant string
	}{
		"by its header":              {event(0, "kind=order.paid"), "order.paid", "shop"},
		"without the header":         {event(0), schemas.DefaultEventType, "shop"},
		"its own words win":          {event(0, "kind=x", "ce_type=event", "ce_tenant=bank"), "event", "bank"},
		"so do those of its payload": {structured, "event", "bank"},
	} {
		d, err := m.Read(c.rec)
		if err != nil || d.Event.Type != c.kind || d.Event.Tenant != c.tenant {
			t.Errorf("%s: type %q tenant %q (%v), want %q %q", name, d.Event.Type, d.Event.Tenant, err, c.kind, c.tenant)
		}
	}
	other := event(0)
	other.Topic = "payments"
	if d, err := m.Read(other); err != nil || d.Event.Tenant != "" || d.Event.Type != schemas.DefaultEventType {
		t.Errorf("a topic that is not mapped: %+v %v", d.Event, err)
	}
}

func TestLookSaysWhatWouldHappen(t *testing.T) {
	reg := &endpointsOf{match: map[string][]string{"/a": {"x", "y"}}}
	if s := Look(event(4, "ce_type=a", "ce_id=i"), Mapping{}, reg.Match); !slices.Equal(s.Endpoints, []string{"x", "y"}) ||
		s.Malformed != "" || s.MessageID != schemas.MessageID("orders", "i") || s.Offset != 4 {
		t.Errorf("%+v", s)
	}
	if s := Look(event(0, "content-type=application/cloudevents-batch+json"), Mapping{}, reg.Match); s.Malformed == "" || len(s.Endpoints) != 0 {
		t.Errorf("%+v", s)
	}
}
