package consume

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/milena-project/milena/internal/offsets"
	"github.com/milena-project/milena/schemas"
)

// Partition names a partition of a topic.
type Partition struct {
	Topic     string
	Partition int32
}

// Intake handles the records of one assignment. Every record that Take was given
// must be answered once: Assignment.Done, or Assignment.GiveUp.
type Intake interface {
	// Take is called from one goroutine for each assignment, in offset order; a
	// record that an earlier assignment gave up late comes whenever that happens.
	// It may block: the partition is then paused, others go on. When ctx ends it
	// must return soon, with what it did not accept given up. The records are the
	// caller's to keep.
	Take(ctx context.Context, recs []schemas.Record)

	// Drain is called once, at the end of the assignment, after the last Take has
	// returned. It begins nothing new and returns when all that was taken is done
	// or given up, or when ctx ends: after five seconds where the partition goes to
	// somebody else, after the drain budget at shutdown, at once where it was lost.
	// What is open then goes on and is answered later.
	Drain(ctx context.Context)
}

// Assignment is one span of ownership of a partition. Safe for concurrent use.
type Assignment struct {
	part    Partition
	own     *ownership
	led     *ledger
	ctx     context.Context // ends when no Take begins any more
	cancel  context.CancelFunc
	gone    atomic.Bool // let go or lost
	topicID [16]byte    // set by position, before anything else can see the assignment

	// Guarded by own.mu.
	positioned bool // its beginning is decided
	armed      bool // polled records are its own
	dying      bool // it is being let go; not armed any more
	blocked    bool // the offset that comes next is not to be read; see outOfRange
	since      time.Time
	mistaken   bool // records came before it was armed; see ownership.accept

	// Guarded by led.mu.
	tracker   *offsets.Tracker
	base      int64
	queue     [][]schemas.Record
	queued    int                      // bytes in queue
	taken     int64                    // offsets below it were given to Take
	adopted   map[int64]schemas.Record // work of an earlier assignment that goes on
	requeued  map[int64]struct{}       // adopted, then given up, not yet taken again
	givenUp   map[int64]struct{}       // taken, then given up by this assignment
	here      map[int64]struct{}       // done for this assignment only, and not committed; see DoneHere
	closing   bool                     // no Take begins any more
	ended     bool                     // let go: facts only
	behind    bool                     // fetching is paused because the queue or the tracker is full
	committed int64                    // last acknowledged commit; -1: none
	metadata  int                      // characters of its metadata
	ages      []age                    // of what was received, from the watermark on
	end       int64                    // of what is committed in the log, when it was asked for last; 0: it was not
	endMoved  time.Time                // when it was first seen beyond all that was received; zero: it is not
	written   uint64                   // tracker.Changes() as of that commit

	more    chan struct{} // one token: the queue is not empty
	idle    chan struct{} // closed when the goroutine that calls Take has returned
	drained chan struct{} // closed when Drain has returned; see drain
	drain1  sync.Once
	hurry   context.CancelFunc // ends Drain's context; set once by drain1
	intake  Intake             // set before idle is closed
}

// Partition is the partition that is owned.
func (a *Assignment) Partition() Partition { return a.part }

// Context ends when the assignment begins to end, before Drain. Start and Take
// should return then; requests that run should not be cut short by it.
func (a *Assignment) Context() context.Context { return a.ctx }

// Owned reports whether a new POST may begin: the partition is still assigned and
// the group answered a heartbeat within the last two thirds of the session timeout.
func (a *Assignment) Owned() bool { return !a.gone.Load() && a.own.lease.fresh() }

// FrozenSince reports whether this process slept for more than a second at any
// moment after start: what a request came to in that time says nothing about the
// receiver.
func (a *Assignment) FrozenSince(start time.Time) bool { return a.own.lease.frozenSince(start) }

// Done says that the record's next durable step was acknowledged. After the
// assignment has ended it is kept as a fact, and is never committed by this one.
// Calling it again does nothing.
func (a *Assignment) Done(offset int64) { a.led.done(a, offset) }

// DoneHere is Done for a record whose next durable step counts only as long as this
// assignment lasts: it is committed like any other, but never kept as a fact. After
// the assignment has ended it does nothing but GiveUp.
func (a *Assignment) DoneHere(offset int64) { a.led.doneHere(a, offset) }

// GiveUp says that this process will not settle the record: it was taken and is
// dropped, because the partition goes or the process ends. Its offset stays below
// the commit, and whoever owns the partition next, also this process, is handed it
// again. A record that is given up while the partition stays is handed over again
// only after the next assignment.
func (a *Assignment) GiveUp(offset int64) { a.led.giveUp(a, offset) }

// run calls Start and then Take until the assignment closes. One goroutine for
// each assignment; only it takes from the queue.
func (a *Assignment) run(start func(*Assignment) Intake) {
	defer close(a.idle)
	a.intake = start(a)
	if a.intake == nil {
		if a.ctx.Err() == nil {
			a.own.setFault(a.part, fmt.Errorf("%s/%d: no intake was made for it", a.part.Topic, a.part.Partition))
		}
		return
	}
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.more:
		}
		for {
			recs, eased := a.led.next(a)
			if eased {
				a.own.wake()
			}
			if recs == nil {
				break
			}
			a.intake.Take(a.ctx, recs)
		}
	}
}

// drain ends the intake: no Take begins any more, the one that runs is told to
// return, then Drain runs until ctx ends. It returns when that is done or, where
// the Intake does not keep to its contract, a little after ctx has ended. It may be
// called again, by a revoke during a shutdown: the drain that runs is then cut
// short by the end of either context.
func (a *Assignment) drain(ctx context.Context) (clean bool) {
	a.drain1.Do(func() {
		a.led.close(a)
		var drainCtx context.Context
		drainCtx, a.hurry = context.WithCancel(context.WithoutCancel(ctx))
		a.own.wg.Go(func() {
			defer close(a.drained)
			defer a.hurry()
			<-a.idle
			if a.intake != nil {
				a.intake.Drain(drainCtx)
			}
		})
	})
	select {
	case <-a.drained:
		return true
	case <-ctx.Done():
	}
	a.hurry()
	grace := time.NewTimer(drainGrace)
	defer grace.Stop()
	select {
	case <-a.drained:
		return true
	case <-grace.C:
		return false
	}
}

// drainGrace is what an Intake has to return after its context ended.
const drainGrace = 250 * time.Millisecond
