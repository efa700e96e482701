// Package attempts reads the attempts topic, the delivery log: what happened to a
// delivery, an event, a subject or an endpoint, and what comes next. It only
// reads, joins no group and commits nothing, so looking never disturbs the work.
//
// cmd/milena and internal/devmode call it.
package attempts
