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
