package consume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	turnEvery  = time.Second      // the poll loop turns at least that often
	stuckAfter = 30 * time.Second // without a turn, a restart would help
	againWait  = time.Second      // before a new client joins: brokers differ for a moment
	leaveWait  = 3 * time.Second
	tellWait   = 2 * time.Second // after it: see tellGone
	endWait    = 5 * time.Second // for goroutines of an Intake that does not return
)

// Loop is one member of a consumer group. Make it with New, run it once with Run.
type Loop struct {
	cfg   Config
	opts  []kgo.Opt
	lease *lease
	own   *ownership
	watch *watch

	turned    atomic.Int64 // unix nanoseconds of the poll loop's last turn
	ticked    atomic.Int64 // of the commit loop's
	state     atomic.Int32
	mu        sync.Mutex
	interrupt context.CancelFunc // ends the poll that is waiting
}

const (
	stateNew = iota
	stateRunning
	stateDraining
	stateEnded
)

// New checks the configuration. extra is added to the kgo options of the client, for
// metrics hooks. Nothing is connected before Run.
func New(cfg Config, extra ...kgo.Opt) (*Loop, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	base, err := cfg.Kafka.Opts()
	if err != nil {
		return nil, err
	}
	l := &Loop{cfg: cfg}
	l.lease = newLease(cfg.SessionTimeout, cfg.Logger)
	l.own = newOwnership(&l.cfg, l.lease, l.wake)
	l.watch = newWatch(&l.cfg, l.own)
	l.opts = append(base, cfg.groupOpts()...)
	l.opts = append(l.opts, l.own.callbacks()...)
	l.opts = append(l.opts, kgo.WithHooks(l.lease, l.watch))
	l.opts = append(l.opts, extra...)
	if err := kgo.ValidateOpts(l.opts...); err != nil {
		return nil, fmt.Errorf("consume: %w", err)
	}
	return l, nil
}

// Run consumes until ctx ends. Then it pauses fetching, drains every assignment
// within the drain budget, commits, and only then leaves the group. It returns nil,
// or the error of the last commit: what was not committed is repeated after a
// restart. Brokers that do not answer are no error; Ready tells of them.
func (l *Loop) Run(ctx context.Context) error {
	if !l.state.CompareAndSwap(stateNew, stateRunning) {
		return errors.New("consume: Run was called before")
	}
	defer l.state.Store(stateEnded)
	now := time.Now().UnixNano()
	l.turned.Store(now)
	l.ticked.Store(now)
	beside, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { l.lease.watchPauses(beside) })
	wg.Go(func() { l.commitTicks(beside) })
	wg.Go(func() { l.watch.run(beside) })
	defer wg.Wait()
	defer cancel()
	defer l.own.waitIntakes(endWait)
	for {
		err := l.session(ctx)
		if !errors.Is(err, errAgain) {
			return err
		}
		l.cfg.Logger.Warn("joining the group again with a new client", "err", err)
		again := time.NewTimer(againWait)
		select {
		case <-ctx.Done():
			again.Stop()
			return nil
		case <-again.C:
		}
	}
}

// errAgain ends a session that only a new client can mend.
var errAgain = errors.New("the client must be replaced")

// session is the life of one client. A client does not adopt a topic that was
// deleted and made again, and it never asks again for the offset of a partition that
// it was refused once; both are mended by a new one. Facts outlive it.
func (l *Loop) session(ctx context.Context) error {
	l.own.begin()
	// A join in flight ends only with the client's own context, and until then the
	// client does not close.
	alive, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	cl, err := kgo.NewClient(append(l.opts[:len(l.opts):len(l.opts)], kgo.WithContext(alive))...)
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	l.watch.begin(cl)
	why := l.poll(ctx, cl)
	budget := l.cfg.RevokeBudget
	if ctx.Err() != nil {
		l.state.Store(stateDraining)
		budget = l.cfg.DrainBudget
	}
	err = l.own.shutdown(context.WithoutCancel(ctx), budget)
	member, _ := cl.GroupMetadata()
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	left := cl.LeaveGroupContext(leave)
	cancel()
	l.watch.end()
	kill()
	cl.Close()
	if left != nil {
		l.tellGone(context.WithoutCancel(ctx), member, left)
	}
	if why != nil {
		return why
	}
	if err != nil {
		return fmt.Errorf("consume: last commit: %w", err)
	}
	return nil
}

// tellGone leaves the group for a client that could not. One whose join is in flight
// cannot: the join ends when all others have joined, and they wait for this member
// until its session times out. So a process that ends while another begins, as in a
// rolling deploy, would keep everybody waiting. (By KIP-848 no member waits in a join.)
func (l *Loop) tellGone(ctx context.Context, member string, why error) {
	if member != "" && l.cfg.GroupProtocol == ProtocolClassic {
		ctx, cancel := context.WithTimeout(ctx, tellWait)
		defer cancel()
		if why = l.leaveAs(ctx, member); why == nil {
			return
		}
	}
	l.cfg.Logger.Warn("the group was not left in order; it notices after the session timeout", "err", why)
}

func (l *Loop) leaveAs(ctx context.Context, member string) error {
	cl, err := l.cfg.Kafka.NewClient()
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = l.cfg.Group, member // the latter for brokers before 2.4
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = member
	req.Members = append(req.Members, m)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if err = kerr.ErrorForCode(resp.ErrorCode); err == nil && len(resp.Members) == 1 {
		err = kerr.ErrorForCode(resp.Members[0].ErrorCode)
	}
	if errors.Is(err, kerr.UnknownMemberID) { // it is gone already
		return nil
	}
	return err
}

// poll turns until ctx ends (nil) or the client is of no more use (errAgain).
func (l *Loop) poll(ctx context.Context, cl *kgo.Client) error {
	for ctx.Err() == nil {
		l.turned.Store(time.Now().UnixNano())
		if topic, err := l.watch.replace(); err != nil {
			l.own.loseTopic(topic)
			return err
		}
		// The context is in place before arm looks: whoever asks for a turn after
		// arm has looked ends the poll.
		turn, cancel := context.WithTimeout(ctx, turnEvery)
		l.mu.Lock()
		l.interrupt = cancel
		l.mu.Unlock()
		l.own.arm()
		fetches := cl.PollFetches(turn)
		cancel()
		l.handle(fetches)
	}
	return nil
}

// wake makes the poll loop begin another turn.
func (l *Loop) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.interrupt != nil {
		l.interrupt()
	}
}

// handle takes errors first: one that stops a partition stops the records that came
// with it too.
func (l *Loop) handle(fetches kgo.Fetches) {
	fetches.EachError(func(topic string, partition int32, err error) {
		l.fetchFailed(Partition{topic, partition}, err)
	})
	for i := range fetches {
		for j := range fetches[i].Topics {
			t := &fetches[i].Topics[j]
			for k := range t.Partitions {
				fp := &t.Partitions[k]
				if len(fp.Records) > 0 && l.own.accept(Partition{t.Topic, fp.Partition}, t.TopicID, fp.Records) {
					l.watch.recreated(t.Topic)
				}
			}
		}
	}
}

// fetchFailed sorts what a poll can fail with, by type.
func (l *Loop) fetchFailed(p Partition, err error) {
	var lost *kgo.ErrDataLoss
	var session *kgo.ErrGroupSession
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrClientClosed):
		// the turn ended
	case errors.As(err, &session):
		// the watch has it from its hook
	case errors.Is(err, kerr.OffsetOutOfRange):
		l.own.outOfRange(p)
	case errors.As(err, &lost):
		l.own.truncated(p, lost)
	default:
		// UNKNOWN_TOPIC_ID: made again, the watch looks. Others, such as a missing
		// ACL: shown until they stop.
		l.watch.failed(p, err)
	}
}

// commitTicks commits what has changed, at every interval. A commit that waits for a
// broker does not stop the ticks: Alive is about us, not about Kafka.
func (l *Loop) commitTicks(ctx context.Context) {
	tick := time.NewTicker(l.cfg.CommitInterval)
	defer tick.Stop()
	var busy atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.ticked.Store(time.Now().UnixNano())
		if !busy.CompareAndSwap(false, true) {
			continue
		}
		wg.Go(func() {
			defer busy.Store(false)
			if err := l.own.commit(ctx, nil); err != nil && ctx.Err() == nil {
				l.watch.commitFailed(err)
			}
		})
	}
}

// Alive reports whether the loops go round, whether or not Kafka answers. It is
// false when only a restart of the process would help.
func (l *Loop) Alive() bool {
	if l.state.Load() != stateRunning {
		return true
	}
	oldest := min(l.turned.Load(), l.ticked.Load())
	return time.Since(time.Unix(0, oldest)) < stuckAfter
}

// Ready returns nil when records flow or would flow, else what is in the way: all of
// it in one error. No partition assigned is fine: other members may have them all.
func (l *Loop) Ready() error {
	switch l.state.Load() {
	case stateNew:
		return errors.New("consume: not started")
	case stateDraining, stateEnded:
		return errors.New("consume: shutting down")
	}
	errs := append(l.watch.wrong(), l.own.wrong()...)
	if !l.lease.joined.Load() {
		errs = append(errs, errors.New("consume: the group has not let this member in yet"))
	}
	return errors.Join(errs...)
}
