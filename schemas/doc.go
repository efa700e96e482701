// Package schemas is Milena's wire contract: what stands in Kafka and what
// receivers see. Records, header names, identities, reasons, topic names and the
// JSON of the records that Milena writes for others to read.
//
// It imports the standard library only and talks to nothing, so that producers
// and readers in Go can use it as it is. Names here are a promise: they change
// with a new version of the record and never in place.
package schemas
