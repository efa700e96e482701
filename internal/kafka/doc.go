// Package kafka is how Milena's packages reach Kafka: one configuration of
// connections for all clients, the topics and what they must look like, a writer
// that never gives up, and raw reading of a range of a partition.
//
// It commits no offsets and joins no group (internal/consume does), and it knows
// records, not deliveries: what stands in them is package schemas' matter. It may
// be called by internal/consume, internal/registry, internal/router, dlq,
// retrytopics and internal/app; dispatcher sees none of it.
//
// Promises:
//
//   - A write that Writer took is retried until it is acknowledged by all in-sync
//     replicas, with two exceptions that its done callback names: ErrTooLarge and
//     ErrClosed.
//   - Certificates, keys and passwords in files are read again when they have
//     changed, at the next connection; no restart is needed.
//   - TLS is never unverified: there is no switch for it.
//   - Nothing here lowers a retention time, deletes a topic or changes a count of
//     partitions.
package kafka
