// Package dlq is dead letters in the hands of an operator: looking at them (Summary,
// List, Count, Show, Export), and doing something about them: a replay, a discard, an
// import, or a resend of what stands in deliveries and its sources. Each is a Plan that
// Execute does as a run, which is recorded and can be cancelled from elsewhere; a
// replay or a discard is resumed after a crash.
//
// Promises:
//
//   - One filter decides everywhere. What Count counts is what List lists, a replay
//     writes and a discard takes out; its times are absolute once it is resolved.
//   - A run works on a snapshot: letters that died after it are not touched.
//   - A letter is tombstoned only after what it was replayed as is acknowledged, or,
//     when it is discarded, after the export is on disk (unless that was declined).
//   - An import brings back what is not there, under the newest generation that the
//     topic knows of it, so that a replay is not dropped as what was POSTed before.
//   - Interrupted anywhere and resumed, a run loses nothing and repeats at most its
//     own writes that were not acknowledged. Two runs that replay the same letter
//     write the same delivery id, generation and attempt, which the owner knows as one.
//   - Reading costs 8 to 32 bytes of memory a letter; payloads are never kept.
//
// Everything is read from Kafka alone; no process of Milena need be alive. cmd/milena
// and internal/app may call it.
package dlq
