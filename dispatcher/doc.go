// Package dispatcher delivers: it takes the records of the partitions that this
// process owns, sends each to its endpoint within that endpoint's limits, and
// settles what came of it. It knows no Kafka; everything that it needs of the world
// is a one-method interface in hooks.go, and internal/app says what stands behind.
//
// The way of one delivery, by file:
//
//	intake.go    a record becomes an item, is forwarded, scheduled or buried
//	lanes.go     whose turn it is; lane.go, ring.go, pace.go: what a lane and a tenant are and may do
//	wait.go      how long a queue takes; starved.go: but for our own sake
//	hold.go      what cannot be sent now; holdread.go: back from there; health.go, takeover.go: what the next owner knows
//	breaker.go   when an endpoint gets a rest; episode.go: how long it has been failing
//	attempt.go   exactly one POST; request.go: what is sent
//	outcome.go   what the answer comes to; fault.go: unless it is we who are cut off
//	settle.go    the only effects: park, bury, log; then the offset is done
//	decide.go    endpoints that are unknown, disabled or deleted
//	shutdown.go  how the work ends
//
// One goroutine per assignment calls Take and Drain. An attempt runs on a goroutine
// that goes on with the next one in turn. Everything that decides is in lanes, under
// its one mutex.
//
// # Invariants
//
// Each has an end-to-end test of the same number in internal/flowtest.
//
//  1. An offset is done only after the next durable step is acknowledged.
//  2. A settled attempt is never POSTed again because a write failed, nor because a
//     partition went and came back.
//  3. No commit for a partition after it is gone, and committed offsets never move back.
//  4. A shutdown does not consume an attempt, and a clean one repeats none.
//  5. One endpoint, slow, hanging, failing or flooding, delays no other beyond R2, and
//     costs at most three writes of ours an attempt besides tier hops (hold, attempt
//     record, next).
//  6. An endpoint never sees more concurrent requests than its limit from a process that
//     knows it owns it; after a crash or a freeze at most twice the limit for at most one
//     attempt timeout.
//  7. No delivery is released before its not-before time, by the releaser's clock.
//  8. Every dead letter has a reason, its history and a way back.
//  9. Memory is bounded by configuration, not by lag, by waiting records or by what
//     receivers answer.
//  10. The body of every attempt equals the producer's bytes, and its signature verifies
//     with the public libraries.
package dispatcher
