package dispatcher

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Deps are a Dispatcher's ways into the world; all but Hooks and Logger are needed.
type Deps struct {
	Transport   http.RoundTripper
	Classify    Classifier
	Endpoints   Endpoints
	Placement   Placement
	Parker      Parker
	DeadLetters DeadLetters
	AttemptLog  AttemptLog
	Forwarder   Forwarder
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

	work   context.Context // of every attempt; ends when a shutdown's patience does
	cancel context.CancelCauseFunc

	closing atomic.Bool
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
		woundUp:    make(chan struct{}),
	}
	d.work, d.cancel = context.WithCancelCause(context.Background()) //nolint:forbidigo // attempts outlive every caller; windUp ends them
	d.lanes = newLanes(cfg, func(l *lane, it *item) { go d.attempts(l, it) })
	return d
}

// Assign begins an assignment of a partition.
func (d *Dispatcher) Assign(partition int32, src Source) *Partition {
	return &Partition{
		d: d, number: partition, src: src,
		room: make(chan struct{}, 1), drained: make(chan struct{}),
	}
}

// Run decides about endpoints that are unknown, disabled or deleted. It returns
// when ctx ends; nothing else of the Dispatcher depends on it.
func (d *Dispatcher) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.lanes.decide:
			d.decideAll(ctx)
		}
	}
}

// attempts makes one attempt after another while there is one to make: a goroutine
// that finishes one goes on with the next in turn.
func (d *Dispatcher) attempts(l *lane, it *item) {
	for it != nil {
		l, it = d.attempt(l, it)
	}
}

// attempt sends one delivery and settles what came of it.
func (d *Dispatcher) attempt(l *lane, it *item) (*lane, *item) {
	ep := d.Endpoints.Endpoint(it.d.EndpointID, it.ep)
	if ep != it.ep && !d.lanes.usable(l, ep) {
		return d.lanes.finish(l, it, endUndecided, time.Time{})
	}
	if !it.part.src.Owned() {
		return d.lanes.finish(l, it, endInterrupted, time.Now().Add(leaseRetry))
	}
	r := d.sender.post(d.work, &it.d, ep)
	v := judge(ep.Schedule.Final, &r)
	if v.outcome != schemas.OutcomeDelivered && it.part.src.FrozenSince(r.started) {
		// We stood still while the attempt was open: the endpoint is not charged
		// for our sleep.
		v = verdict{outcome: schemas.OutcomeInterrupted}
	}
	if v.outcome == schemas.OutcomeInterrupted {
		return d.interrupted(l, it, &r)
	}
	nextLane, next := d.lanes.finish(l, it, endingOf(v, &r), pauseOf(&r))
	if v.disable {
		d.lanes.disable(l, ep.Version)
	}
	d.settle(it, ep, &r, v)
	return nextLane, next
}

// leaseRetry is when a lane is looked at again whose partition we may not own.
const leaseRetry = 100 * time.Millisecond

// faultRetry is how long a lane rests after a fault of our own.
const faultRetry = time.Second

func (d *Dispatcher) interrupted(l *lane, it *item, r *result) (*lane, *item) {
	if d.Hooks.Interrupted != nil {
		d.Hooks.Interrupted(r.class)
	}
	if r.class != schemas.ClassCancelled {
		d.Logger.Warn("attempt interrupted, not counted", "endpoint_id", it.d.EndpointID,
			"delivery_id", it.d.ID(), "error_class", r.class, "err", r.text)
	}
	return d.lanes.finish(l, it, endInterrupted, time.Now().Add(faultRetry))
}

// endingOf says what a verdict means for the lane.
func endingOf(v verdict, r *result) ending {
	switch {
	case v.outcome == schemas.OutcomeDelivered:
		return endSucceeded
	case r.status == http.StatusTooManyRequests:
		return endThrottled
	case r.class == "" && r.status >= 400 && r.status < 500:
		return endFinal
	default:
		return endFailed
	}
}

// maxPause is the longest that one answer may pause a lane.
const maxPause = time.Hour

// pauseOf is until when an answer asks for a pause of the whole endpoint:
// Retry-After with 429 or 503.
func pauseOf(r *result) time.Time {
	if r.retryAfter > 0 && (r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable) {
		return time.Now().Add(min(r.retryAfter, maxPause))
	}
	return time.Time{}
}
