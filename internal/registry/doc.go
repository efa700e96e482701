// Package registry keeps the endpoints: what is registered, for whom, with which
// secrets and limits. The endpoints topic (compacted, one partition) is the only
// store; there is no database.
//
// Two sides use it:
//
//   - Every process follows the topic with a Follower into an in-memory view whose
//     endpoints are never changed in place. Its Barrier says that everything that
//     was committed before the question is in the view, which the router needs
//     before a fan-out and an owner before it decides unknown, disabled or deleted.
//   - Administration (the command line, the admin API) changes it with an Admin, by
//     compare-and-swap with Kafka alone (Table): two administrators never lose each
//     other's changes, versions only grow, and a secret is shown only after its
//     record was read back. The dispatcher never writes here: what it finds out
//     about an endpoint goes to the health topic with the version it refers to.
//
// Secrets are sealed with a KeyRing before they leave the process and stay sealed
// in the view; they are opened at the moment of signing.
//
// internal/app, internal/router, dlq (for Table) and cmd/milena may call it.
package registry
