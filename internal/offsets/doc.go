// Package offsets turns offsets of a log that are settled out of order into the
// first one that is not: of a partition for internal/consume, and of one endpoint's
// records on hold for dispatcher. It is pure.
package offsets
