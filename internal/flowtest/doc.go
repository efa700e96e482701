// Package flowtest holds the promises of the whole system, end to end: records into
// Kafka, requests at a receiver that keeps its own log. Each invariant of package
// dispatcher has a test here that bears its number.
//
// The suite runs unchanged against the embedded broker (go test) and against a real
// Apache Kafka (go test -tags kafka). What was lost or repeated is judged by the
// receiver's log alone, never by Milena's own figures.
package flowtest
