package app

import (
	"context"
	"fmt"
	"time"

	"github.com/milena-project/milena/dispatcher"
	"github.com/milena-project/milena/internal/consume"
	"github.com/milena-project/milena/retrytopics"
	"github.com/milena-project/milena/schemas"
)

// assign begins the dispatcher's work on a partition. An assignment that ends
// before its takeover is through takes nothing in, and so does a partition that this
// process does not know: the topic has more than it was started with, so the same
// endpoint has another partition in a process that was started later.
func (a *App) assign(as *consume.Assignment) consume.Intake {
	p := as.Partition()
	if int(p.Partition) >= a.cfg.Topics.Partitions {
		err := fmt.Errorf("%s has partition %d, and this process was started for %d (topics.partitions); stop all processes, then start them with the new count",
			p.Topic, p.Partition, a.cfg.Topics.Partitions)
		a.log.Error("partition refused", "topic", p.Topic, "partition", p.Partition, "err", err)
		a.setNotUp(err)
		return noIntake{as}
	}
	a.owned.add(as)
	if taken := a.dispatch.Assign(as.Context(), p.Partition, as); taken != nil {
		return taken
	}
	return noIntake{as}
}

// noIntake gives up what it is handed, when the assignment ends: nothing of the
// partition is done by this process.
type noIntake struct{ as *consume.Assignment }

func (n noIntake) Take(_ context.Context, recs []schemas.Record) {
	<-n.as.Context().Done()
	for i := range recs {
		n.as.GiveUp(recs[i].Offset)
	}
}

func (noIntake) Drain(context.Context) {}

func (a *App) parker(fx *effects) (*retrytopics.Parker, error) {
	tiers, err := retrytopics.NewTiers(a.cfg.Retry.Tiers...)
	if err != nil {
		return nil, fmt.Errorf("retry.tiers: %w", err)
	}
	return retrytopics.NewParker(retrytopics.ParkerConfig{
		Writer: a.writer, DeadLetter: fx, Names: a.names, Tiers: tiers,
		Partitions: int32(a.cfg.Topics.RetryPartitions), //nolint:gosec // checked by config
		Hooks:      []retrytopics.Hook{tierHooks{a}},
	})
}

func (a *App) addReleaser(fx *effects, parker *retrytopics.Parker) error {
	r, err := retrytopics.NewReleaser(retrytopics.ReleaserConfig{
		Kafka: a.kafka, Writer: a.writer, Parker: parker, DeadLetter: fx,
		DeliveriesPartitions: fx.partitions, Hooks: []retrytopics.Hook{tierHooks{a}}, Logger: a.log,
		Consume: a.consumeConfig(RoleReleaser, nil, nil), // it chooses its topics itself
	})
	if err != nil {
		return err
	}
	a.loops = append(a.loops, role{RoleReleaser, r})
	return nil
}

// hooks tell metrics, and whoever embeds, what the dispatcher does.
func (a *App) hooks() dispatcher.Hooks {
	m := a.metrics
	hooks := dispatcher.Hooks{
		Attempted: func(at *schemas.Attempt) {
			m.Attempted(at)
			a.logAttempt(at)
			if a.opts.OnAttempt != nil {
				a.opts.OnAttempt(at)
			}
		},
		Delivered: m.Delivered, Duplicate: m.Duplicate, Misrouted: a.misrouted, Interrupted: m.Interrupted,
		Held:   func(c dispatcher.HoldCause) { m.Held(string(c)) },
		Unheld: m.Unheld, HoldRead: m.HoldRead,
		BreakerChanged: func(c dispatcher.BreakerChange) {
			m.BreakerChanged(string(c.From), string(c.To))
			if a.opts.OnBreaker != nil && c.To != dispatcher.BreakerHalfOpen {
				a.opts.OnBreaker(c.EndpointID, c.Until)
			}
		},
	}
	if a.opts.Traces != nil {
		hooks.Attempting = a.opts.Traces.Attempting
	}
	return hooks
}

// tierHooks tell metrics what the tiers do.
type tierHooks struct{ app *App }

func (h tierHooks) OnParked(tier time.Duration)   { h.app.metrics.Parked(schemas.TierLabel(tier)) }
func (h tierHooks) OnLeft(tier time.Duration)     { h.app.metrics.Left(schemas.TierLabel(tier)) }
func (h tierHooks) OnReleased(late time.Duration) { h.app.metrics.Released(late) }

// OnBacklog is told every fifteen seconds.
func (h tierHooks) OnBacklog(tiers []retrytopics.TierBacklog) {
	for _, t := range tiers {
		h.app.metrics.Backlog(schemas.TierLabel(t.Delay), t.Waiting, t.Overdue, t.OldestOverdue)
	}
}

func (h tierHooks) OnSkew(ahead time.Duration)      { h.app.metrics.Skew(ahead) }
func (h tierHooks) OnHeld(records int, bytes int64) { h.app.metrics.NearDue(records, bytes) }
