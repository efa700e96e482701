// Package router turns records of other teams' topics, the sources, into deliveries:
// one for each endpoint that subscribes to the event.
//
// It promises:
//
//   - A record is done only after every delivery of it was acknowledged. A crash in
//     between writes some of them again, with the same delivery ids: the origin is the
//     record's own place, so the owner drops what it has seen.
//   - An event that was produced after the registration of an endpoint was
//     acknowledged reaches that endpoint: the registry's barrier is passed after its
//     record was read. While it cannot be passed the router waits and is not ready; no record
//     dies of it.
//   - What cannot be read becomes a dead letter, and its partition goes on. What
//     nobody subscribes to is counted and not stored.
//   - Memory is bounded by Config.InFlightBytes and by what consume reads ahead, not by
//     the number of subscribers.
//
// Deliveries of one source partition for one endpoint are written in the order of
// their records. Callers: internal/app runs it, cmd/milena shows by Look what it would
// do. Files by the way of a record: mapping reads it, intake fans it out, router waits
// for the registry.
package router
