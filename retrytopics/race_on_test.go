//go:build kafka && race

package retrytopics

// Lateness is promised for a system that is not saturated, and the race detector
// saturates one: fewer records, and their lateness is logged only.
const (
	realRecords = 10_000
	punctual    = false
)
