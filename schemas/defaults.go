package schemas

import "time"

// What more than one package has to mean the same by: who makes the topics, who registers
// endpoints, who sends and who waits.
const (
	// DefaultMaxAge is how long after its milena-enqueued time a delivery may still be tried.
	DefaultMaxAge = 96 * time.Hour
	// KeptBeyondMaxAge is how much longer than the max age a topic of deliveries keeps its
	// records, and the registry a deleted endpoint: a week for operators.
	KeptBeyondMaxAge = 7 * 24 * time.Hour
	// MaxRetryAfter is the longest Retry-After that counts for a delivery; a later one counts
	// as this much.
	MaxRetryAfter = 24 * time.Hour
)

// DefaultTiers are the delays of the retry topics: 0s, 10s, 1m, 5m, 30m, 2h, 6h, 12h, 24h.
func DefaultTiers() []time.Duration {
	return []time.Duration{0, 10 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute,
		2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour}
}
