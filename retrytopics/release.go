package retrytopics

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/milena-project/milena/internal/budget"
	"github.com/milena-project/milena/internal/consume"
	"github.com/milena-project/milena/internal/kafka"
)

// Releaser reads the tiers and moves every delivery on when it has waited: to the
// next tier, or to deliveries when it is due. Make it with NewReleaser.
type Releaser struct {
	cfg        ReleaserConfig
	loop       *consume.Loop
	deliveries string
	clock      *clock
	near       *near
	inFlight   *budget.Budget
	released   []HookReleased
	left       []HookLeft
	skewHooks  []HookSkew

	mu    sync.Mutex
	spans map[*span]struct{}
	told  time.Time // of a skew, on the monotonic clock; limits the log to a line each ten minutes
}

// NewReleaser makes a Releaser; Run starts it. The error says what is missing in cfg.
func NewReleaser(cfg ReleaserConfig) (*Releaser, error) {
	cfg = cfg.WithDefaults()
	switch {
	case cfg.Writer == nil, cfg.Parker == nil, cfg.DeadLetter == nil:
		return nil, errors.New("retrytopics: a Releaser needs a Writer, a Parker and a DeadLetter")
	case cfg.DeliveriesPartitions <= 0:
		return nil, errors.New("retrytopics: a Releaser needs the partition count of deliveries")
	}
	r := &Releaser{
		cfg: cfg, deliveries: cfg.Kafka.Names.Deliveries(), clock: newClock(cfg.Now),
		near: newNear(cfg.NearBytes), inFlight: budget.New(cfg.InFlightBytes),
		released: hooksOf[HookReleased](cfg.Hooks), left: hooksOf[HookLeft](cfg.Hooks), skewHooks: hooksOf[HookSkew](cfg.Hooks),
		spans: map[*span]struct{}{},
	}
	c := cfg.Consume
	c.Kafka, c.Logger = cfg.Kafka, cfg.Logger
	c.Group = cfg.Kafka.Names.Group("releaser")
	// Every tier that exists, not every tier that is configured: records still wait
	// in those that were taken out. A new one has no commit and begins at its start.
	c.Topics, c.TopicsRegex = []string{"^" + regexp.QuoteMeta(cfg.Kafka.Names.RetryPrefix())}, true
	c.InitialOffset = consume.InitialEarliest
	c.Start = func(a *consume.Assignment) consume.Intake { return r.start(a, a.Partition().Topic) }
	var err error
	if r.loop, err = consume.New(c); err != nil {
		return nil, fmt.Errorf("releaser: %w", err)
	}
	return r, nil
}

// Run releases until ctx ends; then what waits in memory is dropped, to be read
// again by whoever is next, writes that are on their way are waited for and
// committed, and the group is left. Errors are those of consume.Loop.Run. Call it once.
func (r *Releaser) Run(ctx context.Context) error {
	beside, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { r.background(beside) })
	defer wg.Wait()
	defer stop()
	if hooks := hooksOf[HookBacklog](r.cfg.Hooks); len(hooks) > 0 {
		cl, err := r.cfg.Kafka.NewClient()
		if err != nil {
			return fmt.Errorf("releaser: %w", err)
		}
		reader, err := kafka.NewReader(r.cfg.Kafka)
		if err != nil {
			cl.Close()
			return fmt.Errorf("releaser: %w", err)
		}
		wg.Go(func() { r.reportBacklog(beside, cl, reader, hooks) })
	}
	return r.loop.Run(ctx)
}

// Ready is nil while the tiers are read; else it says what is wrong.
func (r *Releaser) Ready() error { return r.loop.Ready() }

// Alive is false when only a restart would help.
func (r *Releaser) Alive() bool { return r.loop.Alive() }

// Figures are what it owns and has to do now; see consume.Loop.Figures.
func (r *Releaser) Figures() consume.Figures { return r.loop.Figures() }

// background is what runs beside the reading of partitions, until ctx ends.
func (r *Releaser) background(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { r.clock.watch(ctx, r.onJump) })
	wg.Go(func() { r.releaseDue(ctx) })
	wg.Go(func() { r.reportHeld(ctx) })
	wg.Wait()
}

// start is the beginning of an assignment of a tier's partition.
func (r *Releaser) start(a assignment, topic string) *span {
	tier, _ := ParseTier(r.cfg.Kafka.Names, topic)
	s := &span{r: r, a: a, topic: topic, tier: tier}
	r.mu.Lock()
	r.spans[s] = struct{}{}
	r.mu.Unlock()
	return s
}

func (r *Releaser) forget(s *span) {
	r.mu.Lock()
	delete(r.spans, s)
	r.mu.Unlock()
}

// releaseDue moves what waits in memory when it is due, until ctx ends. It is the
// only goroutine that takes from near, but for revokes.
func (r *Releaser) releaseDue(ctx context.Context) {
	const atOnce = 512
	buf := make([]held, 0, atOnce)
	for ctx.Err() == nil {
		now := r.clock.wall()
		due, next := r.near.takeDue(now, atOnce, buf)
		if len(due) == 0 && next.Sub(now) > Near+time.Second {
			// Nothing that is near can be that far: the wall clock went back. In
			// the tiers it waits without filling memory.
			far := now.Add(Near).UnixMilli()
			due = r.near.takeIf(func(it *held) bool { return it.due > far })
		}
		for _, it := range due {
			r.moveHeld(ctx, it)
		}
		clear(due)
		if len(due) > 0 {
			continue
		}
		if next.IsZero() {
			next = now.Add(time.Hour)
		}
		r.clock.wait(ctx, r.near.sooner, next, time.Hour)
	}
}

func (r *Releaser) moveHeld(ctx context.Context, it held) {
	if it.span.isClosed() || !r.inFlight.Acquire(ctx, it.inFlight()) {
		it.span.giveUp(it.offset)
		return
	}
	r.write(it)
}

// write sends a delivery where it belongs now: back to deliveries when it is due,
// else to a tier. Here, in one place, it is made sure that nothing is released early.
func (r *Releaser) write(it held) {
	now := r.clock.wall()
	if now.Before(it.d.NotBefore) {
		r.cfg.Parker.park(it.d, func(err error) { r.settle(it, err) })
		return
	}
	d := it.d
	d.Released, d.HopUntil, d.Claim = now, time.Time{}, 0
	key := []byte(d.EndpointID)
	r.cfg.Writer.Write(kafka.Message{
		Topic: r.deliveries, Partition: kafka.Partition(key, r.cfg.DeliveriesPartitions),
		Key: key, Value: d.Payload, Headers: d.Headers(),
	}, func(w kafka.Written) {
		if errors.Is(w.Err, kafka.ErrTooLarge) {
			buryTooLarge(r.cfg.DeadLetter, d, r.deliveries, func() { r.settle(it, nil) })
			return
		}
		if w.Err == nil && len(r.released) > 0 {
			r.tellReleased(d.NotBefore)
		}
		r.settle(it, w.Err)
	})
}

// settle ends a write that was acknowledged, or that will not be.
func (r *Releaser) settle(it held, err error) {
	if err == nil {
		for _, h := range r.left {
			h.OnLeft(it.span.tier)
		}
		it.span.done(it.offset)
	} else {
		it.span.giveUp(it.offset)
	}
	r.inFlight.Release(it.inFlight())
}
