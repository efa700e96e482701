// Package retrytopics is where deliveries wait: it says when a failed delivery is
// tried again (schedule.go), keeps it in Kafka until then (tier.go, park.go) and
// moves it back to the deliveries topic when it is due (release.go).
//
// What it promises:
//
//   - No delivery is released before its not-before time, by the releaser's own clock.
//   - A record of a tier is done only after its next durable step (the next tier, the
//     deliveries topic or the dead-letter topic) is acknowledged. A crash repeats moves,
//     at most the last ten seconds of them, and loses none.
//   - Memory is bounded by configuration, whatever waits and however long.
//   - The tiers can be changed while records wait in them: every topic that begins with
//     the retry prefix is read, and readiness stands in the record, not in the topic's name.
//
// schedule.go and tier.go are pure. The dispatcher parks through Parker; only the
// composition root starts a Releaser. Nothing here POSTs.
package retrytopics
