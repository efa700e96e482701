package dispatcher

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/milena-project/milena/schemas"
)

// Deps are a Dispatcher's ways into the world; all but Hooks and Logger are needed.
type Deps struct {
	Transport   Transport
	Classify    Classifier
	Endpoints   Endpoints
	Placement   Placement
	Parker      Parker
	DeadLetters DeadLetters
	AttemptLog  AttemptLog
	Forwarder   Forwarder
	Notifier    Notifier
	HoldLog     HoldLog
	Hooks       Hooks
	Logger      *slog.Logger
}

// Dispatcher delivers. Make one with New, give it the partitions that this process
// owns with Assign, and let Run go beside it.
type Dispatcher struct {
	Deps
	cfg        Config
	lanes      *lanes
	duplicates *duplicates
	sender     sender
	clock      *clock
	holdPace   *rate.Limiter // bytes read from hold

	work   context.Context // of every attempt; ends when a shutdown's patience does
	cancel context.CancelCauseFunc

	running sync.WaitGroup // goroutines that make attempts; none is added once lanes are closed

	closing atomic.Bool
	budget  atomic.Int64 // of the shutdown, ns
	wound   sync.Once
	woundUp chan struct{}
}

// New returns a Dispatcher that owns nothing yet.
func New(cfg Config, deps Deps) *Dispatcher {
	cfg = cfg.WithDefaults()
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Dispatcher{
		Deps: deps, cfg: cfg,
		duplicates: newDuplicates(cfg.DuplicateEntries, cfg.DuplicateAge),
		sender:     sender{transport: deps.Transport, classify: deps.Classify, userAgent: cfg.UserAgent},
		holdPace:   rate.NewLimiter(holdRate, holdTurn),
		clock:      newClock(wallNow),
		woundUp:    make(chan struct{}),
	}
	d.work, d.cancel = context.WithCancelCause(context.Background()) //nolint:forbidigo // attempts outlive every caller; windUp ends them
	d.lanes = newLanes(cfg, d, func(it *item) { d.running.Go(func() { d.attempts(it) }) })
	return d
}

// Run decides about endpoints that are unknown, disabled or deleted, and keeps
// health records from being compacted away. When ctx ends, which is after the last
// Drain, it cuts off the attempts that are still open and returns when none is.
func (d *Dispatcher) Run(ctx context.Context) {
	defer func() {
		d.lanes.close()
		d.cancel(errShutdown)
		d.running.Wait()
	}()
	retell := time.NewTicker(retellEvery)
	defer retell.Stop()
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.lanes.decide:
			d.decideAll(ctx)
		case <-retell.C:
			d.lanes.retell()
		case <-refresh.C:
			d.refresh()
			d.lanes.tellHeld()
		}
	}
}

// attempts makes one attempt after another while there is one to make: a goroutine
// that finishes one goes on with the next in turn.
//
// Its attempts have a context of its own: every request joins its parent's list of
// children and leaves it again, and one list for all would be one lock for all.
func (d *Dispatcher) attempts(it *item) {
	ctx, cancel := context.WithCancel(d.work)
	defer cancel()
	for it != nil {
		it = d.attempt(ctx, it)
	}
}

// attempt sends one delivery, settles what came of it and returns the next one.
func (d *Dispatcher) attempt(ctx context.Context, it *item) *item {
	ep := d.Endpoints.Endpoint(it.d.EndpointID, it.ep)
	if ep != it.ep && !d.lanes.usable(it.lane, ep) {
		e := interruptedFor(0)
		e.undecided = true
		return d.putBack(it, e)
	}
	if !it.part.src.Owned() {
		return d.putBack(it, interruptedFor(leaseRetry))
	}
	if d.Hooks.Attempting != nil {
		it.span = d.Hooks.Attempting(&it.d, ep)
	}
	r := d.sender.post(ctx, it, ep)
	v := judge(ep.Schedule.Final, &r)
	if r.class != "" && it.part.src.FrozenSince(r.started) {
		// We stood still while the attempt was open, and no answer came: the endpoint
		// is not charged for our sleep. An answer is its own, whenever we read it.
		v = verdict{outcome: schemas.OutcomeInterrupted}
	}
	if mayBeOurs(&r) && d.ourFault(it, &r) {
		v = verdict{outcome: schemas.OutcomeInterrupted}
	}
	if it.span != nil {
		it.span.End(r.status, r.class, v.outcome == schemas.OutcomeInterrupted)
		it.span = nil
	}
	if v.outcome == schemas.OutcomeInterrupted {
		d.interrupted(it, &r)
		return d.putBack(it, interruptedFor(faultRetry))
	}
	it.ep = ep
	next, notice := d.lanes.finish(it, endingOf(v, &r))
	d.settle(it, &r, v, notice)
	return next
}

func (d *Dispatcher) putBack(it *item, e ending) *item {
	next, _ := d.lanes.finish(it, e)
	return next
}

// leaseRetry is when a lane is looked at again whose partition we may not own.
const leaseRetry = 100 * time.Millisecond

// faultRetry is how long a lane rests after a fault of our own.
const faultRetry = time.Second

func (d *Dispatcher) interrupted(it *item, r *result) {
	if d.Hooks.Interrupted != nil {
		d.Hooks.Interrupted(r.class)
	}
	if r.class != schemas.ClassCancelled {
		d.Logger.Warn("attempt interrupted, not counted", "endpoint_id", it.d.EndpointID,
			"delivery_id", it.d.ID(), "error_class", r.class, "err", r.text)
	}
}
