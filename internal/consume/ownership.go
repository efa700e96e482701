package consume

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// limits bound the memory of one partition.
type limits struct {
	queueBytes int
	unsettled  int
}

// ownership knows which partitions are assigned, whose a polled record is, and what
// became of the records of earlier assignments. It outlives the kgo client.
//
// kgo calls assigned, revoked and lost one after the other; polls, commits and the
// shutdown run beside them. The races that its rules are for:
//
// Records of an old assignment, handed over under a new one:
//
//	(1) the poll returns records 500–599 of p and the loop's goroutine is descheduled
//	(2) p is revoked (committed 480, by us) and assigned again; another member owned
//	    it in between, or not; consumption begins at 480
//	(3) the loop goes on with 500–599, finds p assigned, hands them over
//	(4) the new assignment polls 480–599: 500–599 are handed over a second time; or,
//	    where the tracker's base were the first record seen, 480–499 count as done
//
// So an assignment is paused when it is made and armed at the beginning of the next
// turn of the loop, by the loop's own goroutine: what the loop holds in its hands
// when it meets an unarmed assignment was polled before. It is dropped.
//
// Records of a new assignment, dropped as old ones:
//
//	(1) a poll reads the set of paused partitions and is descheduled
//	(2) p is assigned and paused, its offset is fetched, its first records arrive
//	(3) the poll goes on and returns them: kgo's cursor is past them, p is not armed
//
// Dropping them would lose them: a gap in what was received counts as done. It
// cannot be told from the case above, so every drop makes the assignment seek back to
// its base when it is armed.
//
// A commit for a partition that is gone: see commit.go.
type ownership struct {
	cfg    *Config
	log    *slog.Logger
	lease  *lease
	limits limits
	wake   func() // makes the poll loop turn
	wg     sync.WaitGroup

	mu      sync.Mutex
	cl      *kgo.Client
	ledgers map[Partition]*ledger
	current map[Partition]*Assignment
	told    map[Partition]bool // what kgo was told: paused
	faults  map[Partition]error
	fetched map[Partition]fetchedCommit // the last OffsetFetch
	closing bool                        // no assignment begins any more, all are paused

	commits committer
}

func newOwnership(cfg *Config, lease *lease, wake func()) *ownership {
	return &ownership{
		cfg: cfg, log: cfg.Logger, lease: lease, wake: wake,
		limits:  limits{queueBytes: cfg.QueueBytes, unsettled: cfg.MaxUnsettled},
		ledgers: make(map[Partition]*ledger),
		current: make(map[Partition]*Assignment),
		told:    make(map[Partition]bool),
		faults:  make(map[Partition]error),
		commits: committer{turn: make(chan struct{}, 1)},
	}
}

// begin is called before each new client is made: a client calls back from then on,
// before whoever makes it has it in hand. The callbacks bring it along.
func (o *ownership) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closing = false
	clear(o.told)
	clear(o.faults)
}

// callbacks are the kgo options that tie a client to this ownership.
func (o *ownership) callbacks() []kgo.Opt {
	return []kgo.Opt{
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, ps map[string][]int32) { o.assigned(cl, ps) }),
		kgo.OnPartitionsRevoked(func(ctx context.Context, _ *kgo.Client, ps map[string][]int32) { o.revoked(ctx, ps) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) { o.lost(ps) }),
		kgo.OnOffsetsFetched(o.offsetsFetched),
		kgo.AdjustFetchOffsetsFn(o.adjust),
	}
}

// assigned makes an assignment of each partition, paused until it is armed. kgo
// fetches its offset only after this has returned.
func (o *ownership) assigned(cl *kgo.Client, ps map[string][]int32) {
	o.lost(ps) // nothing, unless kgo assigns what it never took away
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cl = cl
	cl.PauseFetchPartitions(ps)
	each(ps, func(p Partition) {
		o.assign(p)
		o.told[p] = true
	})
}

// assign makes the assignment of a partition; o.mu is held.
func (o *ownership) assign(p Partition) *Assignment {
	led := o.ledgers[p]
	if led == nil {
		led = &ledger{}
		o.ledgers[p] = led
	}
	a := &Assignment{
		part: p, own: o, led: led, since: time.Now(),
		more: make(chan struct{}, 1), idle: make(chan struct{}), drained: make(chan struct{}),
	}
	a.ctx, a.cancel = context.WithCancel(context.Background()) //nolint:forbidigo // the assignment's own life, ended by revoke or loss
	o.current[p] = a
	delete(o.faults, p)
	return a
}

// revoked drains, commits and lets go. The other members wait for it, without a
// heartbeat of ours, so each step is bounded.
func (o *ownership) revoked(ctx context.Context, ps map[string][]int32) {
	as := o.detach(ps)
	if len(as) == 0 {
		return
	}
	o.drain(ctx, as, o.cfg.RevokeBudget)
	ctx, cancel := context.WithTimeout(ctx, o.cfg.RevokeBudget)
	defer cancel()
	if err := o.commit(ctx, as); err != nil {
		o.log.Warn("no commit on revoke; the next owner repeats what was not committed", "err", err)
	}
	o.end(as, false)
}

// lost lets go without a commit: the partitions may be somebody else's already.
// Work that runs goes on, and its results stay.
func (o *ownership) lost(ps map[string][]int32) {
	as := o.detach(ps)
	if len(as) == 0 {
		return
	}
	o.end(as, true)
	o.mu.Lock()
	closing := o.closing
	o.mu.Unlock()
	if closing {
		return // the shutdown drains them, with its own budget: what runs keeps its result
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // it has ended already: nothing is waited for
	cancel()
	o.drain(ctx, as, 0)
}

// detach returns the assignments of the partitions and keeps them from being armed.
func (o *ownership) detach(ps map[string][]int32) (as []*Assignment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	each(ps, func(p Partition) {
		if a := o.current[p]; a != nil {
			o.retire(a)
			as = append(as, a)
		}
	})
	return as
}

// retire keeps an assignment from being armed; o.mu is held.
func (o *ownership) retire(a *Assignment) {
	if !a.dying && !a.armed {
		close(a.idle) // nobody will call Start
	}
	a.dying = true
}

// drain drains all of them at once.
func (o *ownership) drain(ctx context.Context, as []*Assignment, budget time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	var wg sync.WaitGroup
	for _, a := range as {
		wg.Go(func() {
			if !a.drain(ctx) {
				o.log.Error("the intake did not return after its context ended; it goes on by itself",
					"topic", a.part.Topic, "partition", a.part.Partition)
			}
		})
	}
	wg.Wait()
}

// end turns assignments into facts. From here on no commit names them.
func (o *ownership) end(as []*Assignment, lost bool) {
	for _, a := range as {
		o.mu.Lock()
		if o.current[a.part] == a {
			delete(o.current, a.part)
			delete(o.faults, a.part)
		}
		open, first := a.led.end(a)
		o.mu.Unlock()
		if !first {
			continue // a revoke during a shutdown has done it
		}
		o.log.Info("partition let go", "topic", a.part.Topic, "partition", a.part.Partition, "lost", lost, "open", open)
	}
}

// shutdown pauses all fetching, drains, commits and lets go of everything. The
// member stays in the group and heartbeats meanwhile; leaving is the caller's next
// step. A revoke that comes while this drains shortens the drain of its partitions.
func (o *ownership) shutdown(ctx context.Context, budget time.Duration) error {
	o.mu.Lock()
	o.closing = true
	var as []*Assignment
	for _, a := range o.current {
		o.retire(a)
		as = append(as, a)
	}
	o.mu.Unlock()
	o.reconcile()
	o.drain(ctx, as, budget)
	ctx, cancel := context.WithTimeout(ctx, shutdownCommit)
	defer cancel()
	err := o.commit(ctx, as)
	o.end(as, false)
	return err
}

// loseTopic lets go, without a commit, of what was assigned of a topic that is not
// the one of that name any more: a commit would be taken for the new one's.
func (o *ownership) loseTopic(topic string) {
	o.mu.Lock()
	ps := make(map[string][]int32)
	for p := range o.current {
		if p.Topic == topic {
			ps[topic] = append(ps[topic], p.Partition)
		}
	}
	o.mu.Unlock()
	o.lost(ps)
}

func each(ps map[string][]int32, fn func(Partition)) {
	for topic, list := range ps {
		for _, p := range list {
			fn(Partition{topic, p})
		}
	}
}

// refused returns a partition that has been assigned for longer than that and has no
// offset, for no reason of ours.
func (o *ownership) refused(longer time.Duration) (Partition, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, a := range o.current {
		if !a.positioned && o.faults[p] == nil && time.Since(a.since) > longer {
			return p, true
		}
	}
	return Partition{}, false
}

// wrong lists the partitions that are assigned and not consumed.
func (o *ownership) wrong() (errs []error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, err := range o.faults {
		errs = append(errs, fmt.Errorf("consume: %w", err))
	}
	for p, a := range o.current {
		if !a.positioned && !a.dying && o.faults[p] == nil {
			errs = append(errs, fmt.Errorf("consume: %s/%d: where it begins is not known yet", p.Topic, p.Partition))
		}
	}
	return errs
}

// waitIntakes waits for the goroutines that call Start, Take and Drain.
func (o *ownership) waitIntakes(longest time.Duration) {
	done := make(chan struct{})
	go func() {
		o.wg.Wait()
		close(done)
	}()
	t := time.NewTimer(longest)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		o.log.Error("an intake does not return; leaving it behind")
	}
}
