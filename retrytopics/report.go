package retrytopics

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
)

func (r *Releaser) tellReleased(notBefore time.Time) {
	var late time.Duration
	if !notBefore.IsZero() {
		late = r.clock.wall().Sub(notBefore)
	}
	for _, h := range r.released {
		h.OnReleased(late)
	}
}

// onJump looks at memory again, because the watch of the clocks has seen a jump.
func (r *Releaser) onJump(by time.Duration) {
	r.cfg.Logger.Warn("the wall clock jumped against the monotonic clock; due times follow the wall clock", "by", by)
	r.near.poke()
}

// reportHeld tells how much waits in memory, every second while it changes.
func (r *Releaser) reportHeld(ctx context.Context) {
	hooks := hooksOf[HookHeld](r.cfg.Hooks)
	if len(hooks) == 0 {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	told := -1
	var toldBytes int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		records, bytes := r.near.held()
		if records == told && bytes == toldBytes {
			continue
		}
		told, toldBytes = records, bytes
		for _, h := range hooks {
			h.OnHeld(records, bytes)
		}
	}
}

// firstBacklog is how long after the start the backlog is told for the first time: a
// scrape must not find nothing, and the first seconds belong to the joining.
const firstBacklog = 2 * time.Second

// reportBacklog tells what waits in the tiers until ctx ends, and closes both clients.
func (r *Releaser) reportBacklog(ctx context.Context, cl *kgo.Client, reader *kafka.Reader, hooks []HookBacklog) {
	defer cl.Close()
	defer reader.Close()
	adm := kadm.NewClient(cl)
	next := time.NewTimer(min(firstBacklog, r.cfg.BacklogEvery))
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		next.Reset(r.cfg.BacklogEvery)
		tiers, err := ReadBacklog(ctx, adm, reader, r.cfg.Kafka.Names, r.clock.wall())
		if err != nil {
			if ctx.Err() == nil {
				r.cfg.Logger.Warn("the backlog of the tiers is not known", "err", err)
			}
			continue
		}
		oldest := r.oldestOverdue()
		for i := range tiers {
			tiers[i].OldestOverdue = oldest[tiers[i].Topic]
		}
		for _, h := range hooks {
			h.OnBacklog(tiers)
		}
	}
}

// skewAlarm is the difference of clocks that is worth a line in the log.
const skewAlarm = time.Minute

const skewLogEvery = 10 * time.Minute

// skewQuiet reports whether the log has had its line about skew lately.
func (r *Releaser) skewQuiet() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.told.IsZero() && time.Since(r.told) < skewLogEvery
}

func (r *Releaser) skew(ahead time.Duration) {
	for _, h := range r.skewHooks {
		h.OnSkew(ahead)
	}
	if ahead.Abs() < skewAlarm || r.skewQuiet() {
		return
	}
	r.mu.Lock()
	r.told = time.Now()
	r.mu.Unlock()
	r.cfg.Logger.Warn("the clocks of the broker and of this cluster's processes differ; due times follow ours", "broker_ahead", ahead)
}

// oldestOverdue is since when the oldest record that Take is busy with has been
// ready, by tier topic. Only what this process owns is known to it.
func (r *Releaser) oldestOverdue() map[string]time.Time {
	now := r.clock.wall().UnixMilli()
	out := map[string]time.Time{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.spans {
		if at := s.readyAt.Load(); at > 0 && now > at {
			if since := time.UnixMilli(at); out[s.topic].IsZero() || since.Before(out[s.topic]) {
				out[s.topic] = since
			}
		}
	}
	return out
}
