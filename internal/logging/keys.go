package logging

import (
	"fmt"
	"io"
	"strings"
)

// Key is an attribute of log lines.
type Key struct{ Name, Means string }

// Keys are all of them; a test holds the tree and the table together.
var Keys = []Key{
	{"endpoint_id", "the endpoint"},
	{"delivery_id", "one event for one endpoint: where its first record stands, and for whom"},
	{"message_id", "what the receiver gets as `webhook-id`; the same for every attempt and endpoint of an event"},
	{"event_id", "the producer's id of the event"},
	{"source", "the event's source, without user, query and fragment"},
	{"type", "the event's type"},
	{"tenant", "the endpoint's tenant"},
	{"attempt", "which attempt of the delivery in this life, from 1; of a registry change: which try"},
	{"generation", "how many times the delivery has died before"},
	{"outcome", "delivered, retry, dead or duplicate"},
	{"reason", "why a delivery is dead"},
	{"status", "the answer's HTTP status; 0: there was none"},
	{"error_class", "what kind of failure an attempt without an answer was"},
	{"err", "the error, at most 256 bytes where it came from an endpoint"},
	{"url", "where it was sent, without user and query"},
	{"duration_ms", "from the start of the attempt to the end of its answer"},
	{"dispatch_delay_ms", "from when the delivery was ready, and the endpoint's own limits let it start, to the first byte"},
	{"bytes", "of the payload"},
	{"next_try", "when the delivery is tried again"},
	{"run", "id of the replay or other run"},
	{"topic", "a Kafka topic"},
	{"partition", "its partition"},
	{"offset", "an offset of it"},
	{"from", "the first offset that is meant"},
	{"to", "the offset after the last"},
	{"group", "the consumer group"},
	{"brokers", "the brokers that were configured"},
	{"addr", "an address that is listened on"},
	{"repeated", "how many lines like this one were kept back since the last that was written"},
	{"writes", "writes that are not acknowledged"},
	{"partitions", "in so many partitions"},
	{"oldest", "since when the oldest of them waits"},
	{"blocked_for", "for how long writes were not acknowledged"},
	{"open", "records of a partition that was let go that this process still works on"},
	{"lost", "of a partition: it was lost and not handed over; of a topic: records that are gone"},
	{"late", "by how much the process's own clock tick was late: it stood still"},
	{"by", "by how much the wall clock jumped"},
	{"broker_ahead", "how far the brokers' clock is ahead of ours"},
	{"why", "in words"},
	{"settled_above", "records above the commit that are known to be done"},
	{"session_timeout", "of the consumer group"},
	{"roles", "what the process does"},
	{"version", "of Milena"},
	{"budget", "how long the shutdown may take"},
	{"grace_time", "what the platform gives a process between SIGTERM and SIGKILL"},
	{"needed", "what a shutdown may need of it"},
	{"drain_budget", "dispatcher.drain_budget"},
	{"longest_timeout", "the longest timeout that an endpoint has"},
	{"hosts", "endpoints that were well and cannot be reached"},
	{"reached", "endpoints that have answered since"},
	{"after", "for how long this process reached hardly anybody"},
	{"differences", "between the topics and what they must be"},
	{"endpoints", "how many endpoints, or which"},
	{"line", "what a library wrote, in one line"},
	{"setting", "a setting, by its YAML path"},
	{"old", "its value before, secrets masked"},
	{"new", "its value now, secrets masked"},
	{"settings", "how many settings changed"},
	{"files", "how many files that settings name changed"},
}

// WriteDocs writes docs/logs.md.
func WriteDocs(w io.Writer) error {
	var b strings.Builder
	b.WriteString(docsHead)
	for _, k := range Keys {
		fmt.Fprintf(&b, "| `%s` | %s |\n", k.Name, k.Means)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const docsHead = `# Logs

Lines go to stderr, as text or JSON (` + "`log.format`" + `), from ` + "`log.level`" + ` up. This page is made from the table in
internal/logging/keys.go; a test fails when it is stale (` + "`make generate`" + ` writes it) or a line has a key that is not in it.

* **One wide line an attempt**, message ` + "`attempt`" + `: a failure is ` + "`info`" + `, a dead letter ` + "`warn`" + `. Of the successes there is the sample that ` + "`log.successes`" + ` asks for (0 to 1); the whole history is in ` + "`milena attempts`" + `.
* **A burst is one line.** The same warning or error about the same thing is written once in ten seconds, and the next one says
  how many were kept back (` + "`repeated`" + `). Lines of attempts are never kept back.
* **Never in a line:** payloads, secrets, headers, what a receiver answered beyond its status, query strings of URLs.
* ` + "`SIGHUP`" + ` reads the configuration and its files again and says what changed; ` + "`log.level`, `log.successes`" + ` and the key ring count at once.

| key | what it is |
| --- | --- |
`
