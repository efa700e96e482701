package schemas

import (
	"strings"
	"time"
)

// DefaultPrefix begins every topic, consumer group, transactional id and client id.
const DefaultPrefix = "webhooks."

// Names derives every name that Milena has in a Kafka cluster from one prefix,
// so that two installations share a cluster without meeting.
type Names struct{ Prefix string }

// Deliveries is the topic of work to do now, keyed by endpoint id.
func (n Names) Deliveries() string { return n.Prefix + "deliveries" }

// Hold is the topic of work that cannot be sent now, keyed by endpoint id.
func (n Names) Hold() string { return n.Prefix + "hold" }

// DLQ is the topic of dead letters, keyed by LetterKey.
func (n Names) DLQ() string { return n.Prefix + "dlq" }

// Attempts is the topic of Attempt records, keyed by endpoint id.
func (n Names) Attempts() string { return n.Prefix + "attempts" }

// Endpoints is the topic of Endpoint records, keyed by id.
func (n Names) Endpoints() string { return n.Prefix + "endpoints" }

// Health is the topic of Health records, keyed by endpoint id.
func (n Names) Health() string { return n.Prefix + "health" }

// Runs is the topic of Run records, keyed by id, and RunControl records.
func (n Names) Runs() string { return n.Prefix + "runs" }

// Notices is the topic of Notice records, keyed by id.
func (n Names) Notices() string { return n.Prefix + "notices" }

// Audit is the topic of Audit records, keyed by subject.
func (n Names) Audit() string { return n.Prefix + "audit" }

// RetryPrefix begins the name of every tier; the tier's label follows.
func (n Names) RetryPrefix() string { return n.Prefix + "retry." }

// Retry is the topic of the tier with that delay, such as webhooks.retry.5m.
func (n Names) Retry(delay time.Duration) string { return n.RetryPrefix() + TierLabel(delay) }

// Group is the consumer group of a role: router, dispatcher or releaser.
func (n Names) Group(role string) string { return n.Prefix + role }

// RegistryTransactionalID is the fence of the compare-and-swap on the registry.
func (n Names) RegistryTransactionalID() string { return n.Prefix + "registry" }

// Own reports whether a topic is one of Milena's.
func (n Names) Own(topic string) bool {
	switch topic {
	case n.Deliveries(), n.Hold(), n.DLQ(), n.Attempts(), n.Endpoints(), n.Health(), n.Runs(), n.Notices(), n.Audit():
		return true
	}
	return strings.HasPrefix(topic, n.RetryPrefix())
}

// TierLabel writes a delay as topics and metrics name it: whole hours, else
// whole minutes, else whole seconds (24h, 90m, 10s, 0s).
func TierLabel(delay time.Duration) string {
	s := int64(delay / time.Second)
	switch {
	case s != 0 && s%3600 == 0:
		return itoa(s/3600) + "h"
	case s != 0 && s%60 == 0:
		return itoa(s/60) + "m"
	default:
		return itoa(s) + "s"
	}
}
