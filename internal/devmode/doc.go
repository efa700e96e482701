// Package devmode is `milena dev`: all of Milena in one process on an embedded
// broker, so that it can be tried on a machine with only Go. It brings the broker
// (on disk, locked against a second process, continued when it is there), a
// receiver that verifies every signature with the public Standard Webhooks
// library, sample endpoints and sample events, and a terminal that shows what
// happens.
//
// Only cmd/milena calls it, and never on the production path. What it runs is
// internal/app as `milena serve` runs it; nothing here changes how deliveries are
// made.
package devmode
