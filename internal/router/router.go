package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/milena-project/milena/internal/budget"
	"github.com/milena-project/milena/internal/consume"
	"github.com/milena-project/milena/schemas"
)

// Registry is what the router asks of the endpoints; registry.Follower has it.
type Registry interface {
	// Barrier returns nil once everything that was registered before the call can be
	// matched.
	Barrier(ctx context.Context) error
	// Match returns the endpoints that an event is for, each once.
	Match(tenant, eventType string) []*schemas.Endpoint
}

// Writer writes what the router decides. Neither call blocks; acked is called once,
// when the write is durable, and never if the process ends first. The delivery is not
// changed meanwhile.
type Writer interface {
	// Deliver writes d to its endpoint's partition of deliveries; what is too large for
	// that becomes a dead letter.
	Deliver(d *schemas.Delivery, acked func())
	// DeadLetter buries a record that cannot be read. It has no endpoint id.
	DeadLetter(d *schemas.Delivery, reason schemas.Reason, acked func())
}

// Hooks are called where they are set. They must not block.
type Hooks struct {
	Routed    func(deliveries int) // a record, and how many deliveries it became
	Unmatched func()               // a record that nobody subscribes to
	Tombstone func()               // a record that is no event; see IsTombstone
}

// Config is what a Router needs.
type Config struct {
	Consume  consume.Config // with Group and Topics; New sets Start
	Mapping  Mapping
	Registry Registry
	Writer   Writer
	Hooks    Hooks
	// InFlightBytes bounds the writes that are not acknowledged yet, over all
	// partitions. Default 64 MiB.
	InFlightBytes int64
	Logger        *slog.Logger // default slog.Default()
}

// Router reads the sources. Make it with New.
type Router struct {
	cfg      Config
	loop     *consume.Loop
	inFlight *budget.Budget

	mu      sync.Mutex
	waiting map[consume.Partition]error // for the registry, and why
	told    time.Time                   // of a malformed record; limits the log
}

// New makes a Router; Run starts it. The error says what is wrong with cfg.
func New(cfg Config) (*Router, error) {
	r := newRouter(cfg)
	c := cfg.Consume
	c.Start = func(a *consume.Assignment) consume.Intake { return r.start(a.Context(), a, a.Partition()) }
	var err error
	if r.loop, err = consume.New(c); err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	return r, nil
}

func newRouter(cfg Config) *Router {
	if cfg.InFlightBytes <= 0 {
		cfg.InFlightBytes = 64 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Router{cfg: cfg, inFlight: budget.New(cfg.InFlightBytes), waiting: map[consume.Partition]error{}}
}

// Run routes until ctx ends; then what is on its way is waited for and committed, and
// the group is left. Errors are those of consume.Loop.Run. Call it once.
func (r *Router) Run(ctx context.Context) error { return r.loop.Run(ctx) }

// Alive is false when only a restart would help.
func (r *Router) Alive() bool { return r.loop.Alive() }

// Figures are what it owns and has to do now; see consume.Loop.Figures.
func (r *Router) Figures() consume.Figures { return r.loop.Figures() }

// Ready is nil while the sources are read and routed; else it says what is wrong.
func (r *Router) Ready() error { return errors.Join(r.loop.Ready(), r.stuck()) }

// stuck is why partitions wait for the registry; nil if none does.
func (r *Router) stuck() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, err := range r.waiting {
		return fmt.Errorf("%d partitions wait for the registry, such as %s/%d: %w", len(r.waiting), p.Topic, p.Partition, err)
	}
	return nil
}

// The registry is asked again after a pause; one question gets so much time.
const (
	barrierTimeout = 5 * time.Second
	barrierPause   = 500 * time.Millisecond
)

// pass waits until the registry holds all that was registered before the call, however
// long that takes: a match against an old view would lose deliveries for good. It is
// false when ctx ended first.
func (r *Router) pass(ctx context.Context, p consume.Partition) bool {
	for {
		asking, cancel := context.WithTimeout(ctx, barrierTimeout)
		err := r.cfg.Registry.Barrier(asking)
		cancel()
		if err == nil || ctx.Err() != nil {
			r.setWaiting(p, nil)
			return ctx.Err() == nil
		}
		r.setWaiting(p, err)
		again := time.NewTimer(barrierPause)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
		}
	}
}

func (r *Router) setWaiting(p consume.Partition, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.waiting)
	if err == nil {
		delete(r.waiting, p)
	} else {
		r.waiting[p] = err
	}
	switch {
	case before == 0 && len(r.waiting) > 0:
		r.cfg.Logger.Warn("the registry cannot be asked; events wait", "topic", p.Topic, "partition", p.Partition, "err", err)
	case before > 0 && len(r.waiting) == 0:
		r.cfg.Logger.Info("the registry answers again; events go on")
	}
}

// tellEvery limits the log lines about malformed records: a producer with a fault has
// many of them, and each stands in dlq.
const tellEvery = 10 * time.Second

func (r *Router) tellMalformed(rec *schemas.Record, err error) {
	r.mu.Lock()
	now := time.Now()
	quiet := now.Sub(r.told) < tellEvery
	if !quiet {
		r.told = now
	}
	r.mu.Unlock()
	level := slog.LevelWarn
	if quiet {
		level = slog.LevelDebug
	}
	r.cfg.Logger.Log(context.Background(), level, "a source record cannot be read; it is a dead letter now", //nolint:forbidigo // of no request
		"topic", rec.Topic, "partition", rec.Partition, "offset", rec.Offset, "err", err)
}
