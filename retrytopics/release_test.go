package retrytopics

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

func TestADeliveryIsReleasedAtItsTimeAndNotAMillisecondBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		defer g.stop()
		_, a, cancel, _ := g.take(10*time.Second, parked(0, 10*time.Second, 13*time.Second))
		defer cancel()
		time.Sleep(13*time.Second - time.Millisecond)
		g.wantTopics("a millisecond before", nil)
		time.Sleep(time.Millisecond)
		g.wantTopics("at its time", map[string]int{names.Deliveries(): 1})
		if done, _ := a.got(); !slices.Equal(done, []int64{0}) {
			t.Errorf("done %v", done)
		}
		d, err := schemas.ParseDelivery(recordOf(g.w.written()[0], 100))
		if err != nil || d.Released.IsZero() || !d.HopUntil.IsZero() || d.ID() != "webhooks.deliveries-09000000-3-0.ep_0" {
			t.Errorf("released %+v, %v", d, err)
		}
	})
}

func TestARecordMovesToALargerTierWhenMuchRemains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		defer g.stop()
		_, _, cancel, _ := g.take(time.Minute, parked(0, time.Minute, 40*time.Minute))
		defer cancel()
		time.Sleep(time.Minute)
		g.wantTopics("after a minute", map[string]int{names.Retry(30 * time.Minute): 1})
	})
}

func TestAHopThatClaimsToEndAYearFromNowDoesNotStopThePartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		defer g.stop()
		mad := parked(0, time.Minute, 370*24*time.Hour)
		d, _ := schemas.ParseDelivery(mad)
		d.HopUntil = d.HopUntil.Add(365 * 24 * time.Hour)
		mad.Headers = d.Headers()
		_, _, cancel, _ := g.take(time.Minute, mad, parked(1, time.Minute, 61*time.Second))
		defer cancel()
		time.Sleep(61 * time.Second)
		g.wantTopics("a minute after it was read", map[string]int{names.Retry(24 * time.Hour): 1, names.Deliveries(): 1})
	})
}

func TestAClockThatJumpsBackAnHourSendsWhatWasNearBackToTheTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		defer g.stop()
		_, a, cancel, _ := g.take(0, parked(0, 0, 5*time.Second), parked(1, 0, 9*time.Second))
		defer cancel()
		time.Sleep(time.Second)
		g.wantTopics("before the jump", nil)
		g.ahead.Store(int64(-time.Hour))
		time.Sleep(2 * time.Second)
		g.wantTopics("after the jump", map[string]int{names.Retry(30 * time.Minute): 2})
		if done, givenUp := a.got(); len(done) != 2 || len(givenUp) != 0 {
			t.Errorf("done %v, given up %v", done, givenUp)
		}
	})
}

func TestAClockThatJumpsAheadMakesDueWhatLiesWithinTheJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		defer g.stop()
		_, _, cancel1, _ := g.take(30*time.Minute, parked(0, 30*time.Minute, 30*time.Minute))
		defer cancel1()
		_, _, cancel2, _ := g.take(2*time.Hour, parked(1, 2*time.Hour, 2*time.Hour))
		defer cancel2()
		time.Sleep(time.Second)
		g.ahead.Store(int64(time.Hour))
		time.Sleep(2 * time.Second)
		g.wantTopics("two seconds after", map[string]int{names.Deliveries(): 1})
		time.Sleep(time.Hour)
		g.wantTopics("an hour later", map[string]int{names.Deliveries(): 2})
	})
}

func TestMemoryIsBoundedAndWhatIsDuePassesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 5 << 10
		g := newRig(t, func(c *ReleaserConfig) { c.NearBytes = limit })
		defer g.stop()
		var recs []schemas.Record
		for i := range int64(20) {
			recs = append(recs, parked(i, 0, 3*time.Second+time.Duration(i)*100*time.Millisecond))
		}
		_, _, cancel, _ := g.take(0, recs...)
		defer cancel()
		late := parked(100, 0, 0)
		_, _, cancel2, returned := g.take(0, late)
		defer cancel2()
		synctest.Wait()
		<-returned
		g.wantTopics("at once", map[string]int{names.Deliveries(): 1})
		for range 60 {
			time.Sleep(100 * time.Millisecond)
			if n, bytes := g.r.near.held(); bytes > limit || n == 0 && bytes != 0 {
				t.Fatalf("%d records of %d bytes in memory, more than %d", n, bytes, limit)
			}
		}
		g.wantTopics("in the end", map[string]int{names.Deliveries(): 21})
		for i, m := range g.w.written() {
			d, _ := schemas.ParseDelivery(recordOf(m, int64(i)))
			if late := d.Released.Sub(d.NotBefore); late > 100*time.Millisecond {
				t.Errorf("%s released %v late", d.ID(), late)
			}
		}
	})
}

func TestWritesInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, func(c *ReleaserConfig) { c.InFlightBytes = 16 << 10 })
		defer g.stop()
		g.w.hold = true
		var recs []schemas.Record
		for i := range int64(40) {
			recs = append(recs, parked(i, 0, 0))
		}
		_, a, cancel, returned := g.take(0, recs...)
		defer cancel()
		for len(g.w.written()) < 40 {
			synctest.Wait()
			if open := len(g.w.held); open > 5 {
				t.Fatalf("%d writes in flight", open)
			}
			g.w.ack()
		}
		<-returned
		g.w.ack()
		if done, _ := a.got(); len(done) != 40 {
			t.Errorf("%d done, want 40", len(done))
		}
	})
}

func TestNothingIsDoneBeforeItsWriteIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		defer g.stop()
		g.w.hold = true
		_, a, cancel, _ := g.take(0, parked(0, 0, 0), parked(1, 0, time.Hour), parked(2, 0, time.Second))
		defer cancel()
		time.Sleep(2 * time.Second)
		g.wantTopics("written", map[string]int{names.Deliveries(): 2, names.Retry(30 * time.Minute): 1})
		if done, _ := a.got(); len(done) != 0 {
			t.Errorf("done before the ack: %v", done)
		}
		g.w.ack()
		if done, _ := a.got(); len(done) != 3 {
			t.Errorf("done after the ack: %v", done)
		}
	})
}

func TestARevokeDropsWhatIsHeldAndWaitsForWhatIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		defer g.stop()
		g.w.hold = true
		s, a, cancel, returned := g.take(time.Minute, parked(0, 0, 0), parked(1, 0, 5*time.Second), parked(2, time.Minute, time.Minute))
		other, b, cancelOther, _ := g.take(0, parked(7, 0, 5*time.Second))
		defer cancelOther()
		time.Sleep(time.Second)
		cancel()
		<-returned
		drained := make(chan struct{})
		go func() { s.Drain(context.Background()); close(drained) }()
		synctest.Wait()
		select {
		case <-drained:
			t.Error("drained with a write on its way")
		default:
		}
		g.w.ack()
		acked := time.Now()
		<-drained
		if waited := time.Since(acked); waited > 0 {
			t.Errorf("drained %v after the last write", waited)
		}
		done, givenUp := a.got()
		if !slices.Equal(done, []int64{0}) || !slices.Equal(givenUp, []int64{1, 2}) {
			t.Errorf("done %v, given up %v, want 0 and 1, 2", done, givenUp)
		}
		g.w.release()
		time.Sleep(10 * time.Second)
		g.wantTopics("only the other partition goes on", map[string]int{names.Deliveries(): 2})
		if done, _ := b.got(); !slices.Equal(done, []int64{7}) {
			t.Errorf("the other partition's record: done %v", done)
		}
		other.Drain(context.Background())
	})
}

func TestADrainThatRunsOutOfTimeLetsWritesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		defer g.stop()
		g.w.hold = true
		s, a, cancel, returned := g.take(0, parked(0, 0, 0))
		<-returned
		cancel()
		ctx, end := context.WithTimeout(context.Background(), 5*time.Second)
		defer end()
		start := time.Now()
		s.Drain(ctx)
		if waited := time.Since(start); waited != 5*time.Second {
			t.Errorf("drained after %v", waited)
		}
		g.w.ack()
		if done, _ := a.got(); !slices.Equal(done, []int64{0}) {
			t.Errorf("the write's fact is lost: done %v", done)
		}
	})
}

func TestWhatCannotBeWrittenAnyMoreIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		defer g.stop()
		g.w.err = kafka.ErrClosed
		_, a, cancel, returned := g.take(0, parked(0, 0, 0), parked(1, 0, time.Hour))
		defer cancel()
		<-returned
		if done, givenUp := a.got(); len(done) != 0 || !slices.Equal(givenUp, []int64{0, 1}) {
			t.Errorf("done %v, given up %v", done, givenUp)
		}
	})
}

func TestAMalformedRecordBecomesADeadLetterAndTheTierGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		defer g.stop()
		bad := parked(0, 0, 0)
		bad.Key = nil
		null := parked(1, 0, 0)
		null.Value = nil
		_, a, cancel, returned := g.take(0, bad, null, parked(2, 0, 0))
		defer cancel()
		<-returned
		if got := g.dead.reasons(); !slices.Equal(got, []schemas.Reason{schemas.ReasonMalformed, schemas.ReasonMalformed}) {
			t.Errorf("dead letters %v", got)
		}
		if g.dead.all[0].Error == "" || string(g.dead.all[0].Payload) != `{"n":1}` {
			t.Errorf("dead letter %+v", g.dead.all[0])
		}
		if done, _ := a.got(); !slices.Equal(done, []int64{0, 1, 2}) {
			t.Errorf("done %v", done)
		}
		g.wantTopics("the good one", map[string]int{names.Deliveries(): 1})
	})
}

func TestWhatDeliveriesFindsTooLargeBecomesADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		defer g.stop()
		g.w.err = kafka.ErrTooLarge
		_, a, cancel, returned := g.take(0, parked(0, 0, 0), parked(1, 0, time.Hour))
		defer cancel()
		<-returned
		if got := g.dead.reasons(); !slices.Equal(got, []schemas.Reason{schemas.ReasonTooLarge, schemas.ReasonTooLarge}) {
			t.Errorf("dead letters %v", got)
		}
		if done, _ := a.got(); len(done) != 2 {
			t.Errorf("done %v", done)
		}
	})
}

type skews struct{ got []time.Duration }

func (s *skews) OnSkew(ahead time.Duration) { s.got = append(s.got, ahead) }

func TestABrokersClockDecidesNothingAndIsMeasured(t *testing.T) {
	for _, ahead := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			measured := &skews{}
			g := newRig(t, func(c *ReleaserConfig) { c.Hooks = []Hook{measured} })
			defer g.stop()
			rec := parked(0, time.Minute, time.Minute)
			rec.Timestamp = rec.Timestamp.Add(ahead)
			_, _, cancel, _ := g.take(time.Minute, rec)
			defer cancel()
			time.Sleep(time.Minute - time.Second)
			g.wantTopics("before", nil)
			time.Sleep(time.Second)
			g.wantTopics("at its time", map[string]int{names.Deliveries(): 1})
			if len(measured.got) != 1 || (measured.got[0]-ahead).Abs() > time.Second {
				t.Errorf("skew %v, want %v", measured.got, ahead)
			}
		})
	}
}

func TestARecordInAMemoryDoesNotKeepItsBatch(t *testing.T) {
	d := delivery("ep_1", 1)
	c := compact(&d)
	if string(c.Payload) != string(d.Payload) || &c.Payload[0] == &d.Payload[0] || &c.Extra[0].Value[0] == &d.Extra[0].Value[0] {
		t.Error("memory is shared with the batch")
	}
}

func TestNewReleaserSaysWhatIsMissing(t *testing.T) {
	if _, err := NewReleaser(ReleaserConfig{}); err == nil {
		t.Error("no error for an empty configuration")
	}
}
