package dlq

import (
	"math"
	"strconv"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// Entry is a dead letter as it stands in the topic.
type Entry struct {
	schemas.Letter
	Written time.Time // of its record: when it came into the topic
	Size    int       // of the payload, bytes
	SameWay bool      // it was replayed, and died as it had died before

	rec schemas.Record
}

// What a tombstone says in schemas.HeaderTombstone.
const (
	settledReplayed  = "replayed"
	settledDiscarded = "discarded"
)

// tombstone settles one death. It goes to the partition that the letter is in,
// whatever the count of partitions is now.
func tombstone(topic string, e *Entry, run, how string) kafka.Message {
	return kafka.Message{Topic: topic, Partition: e.Partition, Key: e.rec.Key, Headers: []schemas.Header{
		{Key: schemas.HeaderTombstone, Value: []byte(how)},
		{Key: schemas.HeaderRun, Value: []byte(run)},
	}}
}

func header(headers []schemas.Header, key string) string {
	for i := range headers {
		if headers[i].Key == key {
			return string(headers[i].Value)
		}
	}
	return ""
}

// fate is how a letter died, in one word: reason, status and error class.
func fate(l *schemas.Letter) string {
	class := string(l.ErrorClass)
	if class == "" {
		class = "-"
	}
	return string(l.Reason) + "/" + strconv.Itoa(l.LastStatus) + "/" + class
}

// diedTheSameWay reports whether the life before ended like this one.
func diedTheSameWay(l *schemas.Letter) bool {
	return l.Generation > 0 && header(l.Extra, schemas.HeaderDiedOf) == fate(l)
}

// revive is the delivery that a replay writes: the same event and origin, a new
// life with a fresh schedule. The generation comes from the letter and not from the
// run, so two replays of one letter are one delivery to the owner.
func revive(e *Entry, run, toEndpoint string, now time.Time) schemas.Delivery {
	l := &e.Letter
	d := schemas.Delivery{
		EndpointID: l.EndpointID, Event: l.Event, Payload: l.Payload, Origin: l.Origin,
		Generation: l.Generation + 1, Enqueued: now.UTC().Truncate(time.Millisecond), Run: run,
		ResendOf: l.ResendOf, Traceparent: l.Traceparent, Tracestate: l.Tracestate, Trace: l.Trace,
	}
	if toEndpoint != "" && toEndpoint != l.EndpointID {
		d.EndpointID, d.ResendOf = toEndpoint, l.ID()
	}
	if d.Payload == nil {
		d.Payload = []byte{}
	}
	d.Extra = make([]schemas.Header, 0, len(l.Extra)+1)
	for _, h := range l.Extra {
		if h.Key != schemas.HeaderDiedOf {
			d.Extra = append(d.Extra, h)
		}
	}
	d.Extra = append(d.Extra, schemas.Header{Key: schemas.HeaderDiedOf, Value: []byte(fate(l))})
	return d
}

// Why a letter is not written; keys of RunCounts.Skipped.
const (
	SkipOmitted  = "payload_omitted" // the broker refused the letter with its payload
	SkipNull     = "payload_null"    // the record's value was null: there is nothing to send
	SkipNowhere  = "no_endpoint"     // the key was no endpoint id
	SkipDisabled = "endpoint_disabled"
	SkipDeleted  = "endpoint_deleted"
	SkipUnknown  = "endpoint_unknown"
	SkipCanary   = "canary_not_delivered" // its endpoint's first one was not delivered
	SkipLate     = "canary_not_known"     // nothing was known of it in time
	SkipTooLarge = "too_large"            // the broker refuses the delivery
	SkipSettled  = "settled_meanwhile"    // replayed or discarded by someone else
	SkipGone     = "gone_meanwhile"       // the topic has it no longer
	SkipPayload  = "payload_unknown"      // a mark of a newer Milena says where the payload is
	SkipLives    = "too_many_lives"       // it cannot be counted how often it has died
	SkipThere    = "already_there"        // import: the letter, or that of a later life, is open
)

// unsendable says why a letter cannot be replayed whatever its endpoint's state is.
func unsendable(l *schemas.Letter, toEndpoint string) string {
	switch {
	case l.Mark == schemas.PayloadOmitted:
		return SkipOmitted
	case l.Mark == schemas.PayloadNull:
		return SkipNull
	case l.Mark != "":
		return SkipPayload
	case l.Generation == math.MaxInt32: // the next one could not be read
		return SkipLives
	case l.EndpointID == "" && toEndpoint == "":
		return SkipNowhere
	}
	return ""
}
