//go:build race

package testkit

// Race reports whether the race detector is on. Under it a pool gives a part of what
// it is given away again, so that figures of memory say nothing, and what unpacks many
// small batches takes ten times as long.
const Race = true
