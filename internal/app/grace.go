package app

import (
	"time"

	"github.com/milena-project/milena/dispatcher"
)

// graceNeeded is how long a stop may take with the endpoints that are registered now:
// what may still begin within the drain budget may take its endpoint's whole timeout,
// and writing down what came of it takes less than the shortest of those.
func (a *App) graceNeeded() (needed, longest time.Duration) {
	longest = a.follower.LongestTimeout(dispatcher.DefaultTimeout)
	return a.cfg.Dispatcher.DrainBudget + longest, longest
}

// checkGrace says at the start when whoever runs this process would kill it before it
// has wound up. It does not refuse: an endpoint that somebody registers must not keep
// all processes from starting.
func (a *App) checkGrace() {
	grace := a.cfg.Dispatcher.GraceTime
	if grace == 0 || a.dispatch == nil {
		return
	}
	if needed, longest := a.graceNeeded(); grace < needed {
		a.log.Warn("the grace time is shorter than a stop may take: requests that are cut off are repeated; raise terminationGracePeriodSeconds (or what stands for it) and dispatcher.grace_time",
			"grace_time", grace, "needed", needed, "drain_budget", a.cfg.Dispatcher.DrainBudget, "longest_timeout", longest)
	}
}
