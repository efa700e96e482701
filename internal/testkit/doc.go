// Package testkit is what Milena's tests stand on: an embedded broker that can
// be stopped and started, receivers that keep their own log of what reached
// them, the comparison of that log with what was produced, and ways to wait for
// an event without sleeping.
//
// It promises that everything it starts listens on loopback only and has ended
// when the test has: each constructor takes a testing.TB and registers its own
// cleanup. A receiver's log never depends on what Milena says about itself.
//
// It is test code: only tests, internal/flowtest and internal/bench import it.
package testkit
