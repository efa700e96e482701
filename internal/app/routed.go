package app

import (
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
		Registry: a.follower, Writer: routed{fx}, Logger: a.log,
		Hooks: router.Hooks{Routed: a.metrics.Routed, Unmatched: a.metrics.Unmatched, Tombstone: a.metrics.Tombstone},
	})
	if err != nil {
		return err
	}
	a.loops = append(a.loops, role{RoleRouter, r})
	return nil
}

// routed are the router's writes on Kafka. What cannot become a delivery is buried in
// the partition of the empty endpoint id, as unreadable records of deliveries are.
type routed struct{ *effects }

// Deliver writes a new delivery.
func (w routed) Deliver(d *schemas.Delivery, acked func()) {
	w.write(w.delivery(d), acked, func() { w.DeadLetter(d, schemas.ReasonTooLarge, acked) })
}
