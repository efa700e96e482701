package app

import (
	"github.com/milena-project/milena/internal/metrics"
	"github.com/milena-project/milena/internal/router"
	"github.com/milena-project/milena/schemas"
)

// addRouter adds the router where there are sources for it.
func (a *App) addRouter(fx *effects) error {
	sources := a.cfg.Sources
	if len(sources.Topics) == 0 {
		return nil
	}
	r, err := router.New(router.Config{
		Consume:  a.consumeConfig(RoleRouter, sources.Topics, nil),
		Mapping:  router.Mapping{Types: sources.Types, Tenants: sources.Tenants},
		Registry: a.follower, Writer: routed{fx, a.metrics}, Logger: a.log,
		Hooks: router.Hooks{Routed: a.metrics.Routed, Unmatched: a.metrics.Unmatched},
	})
	if err != nil {
		return err
	}
	a.loops = append(a.loops, role{RoleRouter, r})
	return nil
}

// routed are the router's writes on Kafka. Its dead letters are counted here, because
// they have no attempt record.
type routed struct {
	*effects
	metrics *metrics.Metrics
}

// Deliver writes a new delivery.
func (w routed) Deliver(d *schemas.Delivery, acked func()) {
	w.write(w.delivery(d), acked, func() { w.DeadLetter(d, schemas.ReasonTooLarge, acked) })
}

// DeadLetter buries what cannot become a delivery. Without an endpoint id it goes to
// the partition of the empty one, as unreadable records of deliveries do.
func (w routed) DeadLetter(d *schemas.Delivery, reason schemas.Reason, acked func()) {
	w.metrics.Buried(reason)
	w.effects.DeadLetter(d, reason, acked)
}
