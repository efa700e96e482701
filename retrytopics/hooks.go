package retrytopics

import "time"

// Hook is any of the one-method interfaces below. Hooks are called from hot paths
// and by several goroutines: they must be quick and safe for concurrent use.
type Hook any

// HookParked is told of every record that a tier has acknowledged: a delivery that
// was parked, or that moved on from a longer tier. It is the count of tier writes.
type HookParked interface {
	OnParked(tier time.Duration)
}

// HookLeft is told of every record that has left a tier, for deliveries, a shorter
// tier or the dead letters, once the write that takes it there is acknowledged.
type HookLeft interface {
	OnLeft(tier time.Duration)
}

// HookReleased is told of every delivery that is back on the deliveries topic. late
// is how long after its not-before time that was acknowledged.
type HookReleased interface {
	OnReleased(late time.Duration)
}

// HookBacklog is told, every ReleaserConfig.BacklogEvery, what waits in the tiers.
type HookBacklog interface {
	OnBacklog(tiers []TierBacklog)
}

// HookHeld is told how much waits in memory for the last ten seconds: every second,
// and only while it changes.
type HookHeld interface {
	OnHeld(records int, bytes int64)
}

// HookSkew is told how far the broker's clock is ahead of the clock of the process
// that parked a record (negative: behind). It decides nothing; it is there to be alarmed on.
type HookSkew interface {
	OnSkew(ahead time.Duration)
}

// hooksOf picks the hooks of one kind, once, so that the hot path asserts nothing.
func hooksOf[H any](hooks []Hook) []H {
	var out []H
	for _, h := range hooks {
		if h, ok := h.(H); ok {
			out = append(out, h)
		}
	}
	return out
}
