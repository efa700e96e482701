package health

import (
	"fmt"
	"time"

	"github.com/milena-project/milena/schemas"
)

// State is what becomes of what comes for an endpoint now.
type State string

// The states. Of several that hold the one that matters most to a delivery is told.
const (
	Enabled  State = "enabled"
	Failing  State = "failing"  // its attempts fail, and it is sent to
	Open     State = "open"     // its breaker is: one delivery at a time is sent, as a probe
	Paused   State = "paused"   // its receiver asked for it
	Disabled State = "disabled" // by an operator, by a 410 or after days of failures
	Deleted  State = "deleted"
	Unknown  State = "unknown" // health could not be read
)

// Status is the state of an endpoint by its record in the registry and by what the
// owner of its partition wrote of its trouble.
type Status struct {
	State State     `json:"state"`
	Why   string    `json:"why,omitempty"`
	Since time.Time `json:"since,omitzero"` // failing, disabled by itself
	Until time.Time `json:"until,omitzero"` // open, paused
}

// Of judges an endpoint. A nil endpoint is one whose configuration is not known, a nil
// record of its owner says that all is well.
func Of(ep *schemas.Endpoint, h *schemas.Health, now time.Time) Status {
	if ep != nil {
		switch ep.State {
		case schemas.StateDeleted:
			return Status{State: Deleted}
		case schemas.StateDisabled:
			return Status{State: Disabled, Why: ep.Reason}
		}
	}
	e := episode(ep, h)
	switch {
	case switchedOff(ep, e):
		return Status{State: Disabled, Why: e.DisabledReason, Since: e.DisabledAt.UTC()}
	case paused(ep, h, now):
		return Status{State: Paused, Why: fmt.Sprintf("it answered %d with Retry-After", h.Paused.Status), Until: h.Paused.Until.UTC()}
	case e != nil && e.BreakerStep > 0:
		return Status{State: Open, Why: failure(e), Since: e.FailingSince.UTC(), Until: e.OpenUntil.UTC()}
	case e != nil && e.Attempts > 0:
		return Status{State: Failing, Why: failure(e), Since: e.FailingSince.UTC()}
	}
	return Status{State: Enabled}
}

// over reports whether what the owner wrote is of an older configuration than the
// endpoint has: a newer one is an operator's word and ends episode and pause.
func over(ep *schemas.Endpoint, h *schemas.Health) bool {
	return ep != nil && ep.Version > h.Version
}

// episode is the failure episode that counts; nil: none does.
func episode(ep *schemas.Endpoint, h *schemas.Health) *schemas.Episode {
	if h == nil || over(ep, h) {
		return nil
	}
	return h.Since
}

// switchedOff reports whether the owner disabled it, at this version or a newer one.
func switchedOff(ep *schemas.Endpoint, e *schemas.Episode) bool {
	return e != nil && e.DisabledVersion > 0 && (ep == nil || ep.Version <= e.DisabledVersion)
}

func paused(ep *schemas.Endpoint, h *schemas.Health, now time.Time) bool {
	return h != nil && !over(ep, h) && h.Paused != nil && h.Paused.Until.After(now)
}
