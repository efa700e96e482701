package consume

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// settleAsync answers each record after a short random time, on goroutines of its own
// as lanes do, and counts how often each offset was settled.
type settleAsync struct {
	slots chan struct{}
	slow  time.Duration

	mu      sync.Mutex
	settled map[Partition]map[int64]int
}

func newSettleAsync(slots int, slow time.Duration) *settleAsync {
	return &settleAsync{slots: make(chan struct{}, slots), slow: slow, settled: make(map[Partition]map[int64]int)}
}

func (s *settleAsync) intake(wg *sync.WaitGroup) func(*Assignment) Intake {
	return func(a *Assignment) Intake { return &asyncIntake{s: s, a: a, all: wg} }
}

type asyncIntake struct {
	s    *settleAsync
	a    *Assignment
	all  *sync.WaitGroup
	here sync.WaitGroup
}

func (i *asyncIntake) Take(ctx context.Context, recs []schemas.Record) {
	for n, r := range recs {
		select {
		case i.s.slots <- struct{}{}:
		case <-ctx.Done():
			for _, r := range recs[n:] {
				i.a.GiveUp(r.Offset)
			}
			return
		}
		i.here.Add(1)
		i.all.Go(func() {
			defer i.here.Done()
			<-time.After(rand.N(i.s.slow))
			<-i.s.slots
			i.s.mu.Lock()
			p := i.a.Partition()
			if i.s.settled[p] == nil {
				i.s.settled[p] = make(map[int64]int)
			}
			i.s.settled[p][r.Offset]++
			i.s.mu.Unlock()
			i.a.Done(r.Offset)
		})
	}
}

func (i *asyncIntake) Drain(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		i.here.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		<-done
	}
}

func (s *settleAsync) count() (settled, repeats int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, offsets := range s.settled {
		for _, n := range offsets {
			settled++
			repeats += n - 1
		}
	}
	return settled, repeats
}

// Invariant 3 under the load that breaks it most easily: members join and leave while
// completions are out of order. Repeats stay within what was open at the hand-overs,
// which is none, because every drain here ends in time.
func TestCommitsNeverMoveBackWhileMembersJoinAndLeave(t *testing.T) {
	for _, protocol := range []Protocol{ProtocolClassic, ProtocolConsumer} {
		t.Run(string(protocol), func(t *testing.T) {
			const partitions, each = 6, 3000
			w := newWorld(t, partitions)
			for p := range int32(partitions) {
				w.produce(p, each)
			}
			s := newSettleAsync(100, 8*time.Millisecond)
			var all sync.WaitGroup
			change := func(c *Config, _ *member) {
				c.Start = s.intake(&all)
				c.GroupProtocol = protocol
				c.QueueBytes = 64 << 10
				c.FetchMaxPartitionBytes = 16 << 10
				// No machine is so slow that a drain does not end in time.
				c.SessionTimeout, c.RevokeBudget, c.DrainBudget = 40*time.Second, 5*time.Second, 40*time.Second
			}
			steady := w.join(change)
			for range 4 {
				guest := w.join(change)
				before, _ := s.count()
				testkit.Eventually(t, patience, func() string {
					if n, _ := s.count(); n < before+1500 && n < partitions*each {
						return fmt.Sprintf("%d settled", n)
					}
					return ""
				})
				guest.leave()
			}
			for p := range int32(partitions) {
				w.awaitCommit(p, each)
			}
			steady.leave()
			all.Wait()
			settled, repeats := s.count()
			if settled != partitions*each {
				t.Errorf("%d settled of %d", settled, partitions*each)
			}
			t.Logf("%d repeats", repeats)
			if repeats != 0 {
				t.Errorf("%d repeats though every drain ended in time", repeats)
			}
			w.check()
		})
	}
}

// The partition goes and comes back between poll and hand-over; what the loop holds in
// its hands then is dropped, and comes again.
func TestRecordsOfAnOldAssignmentAreNotTakenForNewOnes(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, 100)
	m := w.join(nil)
	first := m.await(100)
	for _, r := range first[:40] {
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(0, 40)
	own, id := m.loop.own, first[0].a.topicID

	// What a poll of the old assignment returned, kept by a loop that is not scheduled.
	p := Partition{testTopic, 0}
	var stale []*kgo.Record
	for o := int64(100); o < 110; o++ {
		stale = append(stale, &kgo.Record{Topic: testTopic, Offset: o, Value: []byte("stale")})
	}
	own.lost(map[string][]int32{testTopic: {0}})
	if own.accept(p, id, stale); len(m.got()) != 100 {
		t.Error("records of a lost partition were handed over")
	}
	// It comes back, is not armed yet, and the loop goes on with what it holds.
	own.mu.Lock()
	back := own.assign(p)
	own.mu.Unlock()
	own.accept(p, id, stale)
	if got := len(m.got()); got != 100 {
		t.Errorf("%d records after the stale ones, want 100", got)
	}
	if !back.mistaken {
		t.Error("the drop is not remembered: had they been new ones, they were lost")
	}
	own.lost(map[string][]int32{testTopic: {0}})
	w.check()
}

// kgo returns records of an assignment that is not armed yet (a poll that had read the
// paused partitions too early). They are dropped, and come again: its cursor is past them.
func TestWhatIsDroppedBeforeAnAssignmentIsArmedComesAgain(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, 500)
	p := Partition{testTopic, 0}
	held := make(chan struct{}, 1)
	m := w.join(func(c *Config, m *member) {
		c.Assigned = func(Partition) {
			own := m.loop.own
			own.mu.Lock()
			defer own.mu.Unlock()
			if a := own.current[p]; !a.armed {
				a.positioned = false // not armed as long as the test wants
				own.cl.ResumeFetchPartitions(map[string][]int32{testTopic: {0}})
				held <- struct{}{}
			}
		}
	})
	own := m.loop.own
	<-held
	testkit.Eventually(t, patience, func() string {
		own.mu.Lock()
		defer own.mu.Unlock()
		if !own.current[p].mistaken {
			return "nothing was dropped"
		}
		return ""
	})
	w.produce(0, 500)
	own.mu.Lock()
	own.current[p].positioned = true
	own.mu.Unlock()
	m.loop.wake()
	for i, r := range m.await(1000) {
		if r.rec.Offset != int64(i) {
			t.Fatalf("record %d is offset %d", i, r.rec.Offset)
		}
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(0, 1000)
	m.leave()
	w.check()
}

// A loss during a shutdown does not cut the drain short: what runs keeps its result.
func TestALossDuringAShutdownLeavesTheDrainItsBudget(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, 3)
	finish, began := make(chan struct{}), make(chan context.Context, 1)
	m := w.join(func(_ *Config, m *member) {
		m.onDrain = func(ctx context.Context, a *Assignment) {
			began <- ctx
			select {
			case <-finish:
			case <-ctx.Done():
				t.Error("the drain was cut short")
			}
			a.Done(0)
		}
	})
	m.await(3)
	m.cancel()
	draining := <-began
	m.loop.own.lost(map[string][]int32{testTopic: {0}})
	if draining.Err() != nil {
		t.Error("the drain's context ended with the loss")
	}
	close(finish)
	<-m.ended
	if got, _ := w.commit(0); got.At > 0 {
		t.Errorf("committed at %d after the loss", got.At)
	}
	w.check()
}

// rejoin makes kgo take all partitions away and give them back.
func (m *member) rejoin(w *world) {
	w.t.Helper()
	guest := w.join(func(c *Config, g *member) {
		g.onTake = func(_ context.Context, a *Assignment, recs []schemas.Record) {
			for _, r := range recs {
				a.GiveUp(r.Offset)
			}
		}
	})
	own := m.loop.own
	testkit.Eventually(w.t, patience, func() string {
		own.mu.Lock()
		defer own.mu.Unlock()
		if len(own.current) > 1 {
			return "the guest has nothing"
		}
		return ""
	})
	guest.leave()
	testkit.Eventually(w.t, patience, func() string {
		own.mu.Lock()
		defer own.mu.Unlock()
		if len(own.current) < 2 {
			return "nothing came back"
		}
		return ""
	})
}

// Invariant 2: what is open when a partition goes is not handed over again when it
// comes back to this process; its late Done counts; what was given up comes again.
func TestFactsOutliveTheAssignment(t *testing.T) {
	w := newWorld(t, 2)
	w.produce(0, 10)
	w.produce(1, 10)
	m := w.join(nil)
	m.onDrain = func(_ context.Context, a *Assignment) {
		for _, o := range []int64{3, 6} { // the rest goes on
			a.GiveUp(o)
		}
	}
	first := m.await(20)
	for _, r := range first {
		if o := r.rec.Offset; o == 0 || o == 5 {
			r.a.Done(o)
		}
	}
	w.awaitCommit(0, 1)
	w.awaitCommit(1, 1)
	m.rejoin(w)
	testkit.Eventually(t, patience, func() string {
		if n := len(m.got()); n < 22 {
			return fmt.Sprintf("%d records, want the given-up two again", n)
		}
		return ""
	})
	again := m.got()[20:]
	gone := again[0].rec.Partition
	for _, r := range first { // late, by the assignment that has ended for one of them
		if o := r.rec.Offset; o != 3 && o != 6 && o != 9 {
			r.a.Done(o)
		}
	}
	for _, r := range again {
		if r.rec.Partition != gone || r.rec.Offset != 3 && r.rec.Offset != 6 {
			t.Errorf("%d/%d was handed over again", r.rec.Partition, r.rec.Offset)
		}
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(gone, 9)
	// 9 of the partition that came back is still at work under the old assignment,
	// which gives it up only now.
	for _, r := range first {
		if r.rec.Partition == gone && r.rec.Offset == 9 {
			r.a.GiveUp(9)
		}
	}
	last := m.await(23)[22]
	if last.rec.Partition != gone || last.rec.Offset != 9 {
		t.Errorf("%d/%d came, want the record that was given up late", last.rec.Partition, last.rec.Offset)
	}
	last.a.Done(9)
	w.awaitCommit(gone, 10)
	m.leave()
	w.check()
}

// The only broker goes away: the classic protocol calls that a loss within seconds.
// What is in flight keeps its results, and nothing that was done is repeated.
func TestABrokerThatIsAwayCostsNoRepeat(t *testing.T) {
	w := newWorld(t, 2, testkit.WithDataDir(""))
	const each = 2000
	s := newSettleAsync(200, 60*time.Millisecond)
	var all sync.WaitGroup
	m := w.join(func(c *Config, _ *member) { c.Start = s.intake(&all) })
	w.produce(0, each)
	w.produce(1, each)
	testkit.Eventually(t, patience, func() string {
		if n, _ := s.count(); n < each/2 {
			return fmt.Sprintf("%d settled", n)
		}
		return ""
	})
	w.fake.Stop()
	w.log.Await(t, patience, "partition let go", "lost=true") // else the test would not show what it is about
	w.fake.Restart()
	for p := range int32(2) {
		w.awaitCommit(p, each)
	}
	testkit.Eventually(t, patience, func() string {
		if err := m.loop.Ready(); err != nil {
			return err.Error()
		}
		return ""
	})
	m.leave()
	all.Wait()
	settled, repeats := s.count()
	if settled != 2*each || repeats != 0 {
		t.Errorf("%d settled of %d, %d repeats", settled, 2*each, repeats)
	}
	w.check()
}
