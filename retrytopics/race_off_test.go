//go:build kafka && !race

package retrytopics

const (
	realRecords = 50_000
	punctual    = true
)
