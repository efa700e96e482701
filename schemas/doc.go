// Package schemas is Milena's wire contract: what stands in Kafka and what
// receivers see. Records, header names, identities, reasons, topic names and the
// JSON of the records that Milena writes for others to read.
//
// ParseDelivery and Delivery.Headers read and write what travels between
// deliveries, hold and the tiers; Letter is what lies in dlq; AppendAttempt writes
// the delivery log. json/ has the JSON Schemas of all of it, testdata/ its bytes.
//
// It imports the standard library only and talks to nothing, so that producers
// and readers in Go can use it as it is. Names here are a promise: they change
// with a new version of the record and never in place.
package schemas
