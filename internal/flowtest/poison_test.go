package flowtest

import (
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// None of these stops its partition: what can be sent is sent, the rest is a dead
// letter with its bytes, and the record behind them arrives.
func TestPoisonStopsNoPartition(t *testing.T) {
	f := newFlow(t)
	f.endpoint("ep")
	f.ready(f.start())
	header := func(k, v string) kgo.RecordHeader { return kgo.RecordHeader{Key: k, Value: []byte(v)} }
	partition := f.record("ep", "", nil).Partition
	put := func(key, value []byte, headers ...kgo.RecordHeader) *kgo.Record {
		return &kgo.Record{Topic: f.names().Deliveries(), Partition: partition, Key: key, Value: value, Headers: headers}
	}
	bare := put([]byte("ep"), []byte("no headers"))
	garbage := put([]byte("ep"), []byte("garbage headers"), header("ce_id", "garbage"), header("ce_source", "/test"),
		header("\x00\xff", "\xfe\x00"), header("", ""), header("milena-attempt", "-7"), header("milena-origin", "nonsense"),
		header("milena-generation", "99999999999999999999"), header("ce_specversion", "0.3"))
	forged := put([]byte("ep"), []byte("forged state"), header("ce_id", "forged"), header("ce_source", "/test"),
		header("milena-attempt", "8"), header("milena-generation", "3"))
	dead := []*kgo.Record{
		put([]byte("ep"), nil, header("ce_id", "tombstone"), header("ce_source", "/test")),
		put(nil, []byte("null key")),
		put([]byte("not an id \xff"), []byte("no id")),
		put([]byte("ep"), []byte(`[{"specversion":"1.0"}]`), header("content-type", "application/cloudevents-batch+json")),
		put([]byte("ep"), []byte(`{"specversion"`), header("content-type", "application/cloudevents+json")),
	}
	all := append([]*kgo.Record{bare, garbage, forged}, dead...)
	testkit.Produce(t, f.client, all...)
	f.want("ep", "/test", "garbage", garbage.Value)
	f.want("ep", "/test", "forged", forged.Value)
	f.want("ep", bare.Topic, bare.Topic+"-"+strconv.Itoa(int(partition))+"-"+strconv.FormatInt(bare.Offset, 10), bare.Value)
	f.send(1, 100, "ep")
	f.delivered(20 * time.Second)
	letters := f.awaitLetters(len(dead))
	f.settled(20 * time.Second)
	byOffset := make(map[int64]schemas.Letter)
	for _, l := range letters {
		byOffset[l.Origin.Offset] = l
	}
	for _, rec := range dead {
		l, ok := byOffset[rec.Offset]
		if !ok {
			t.Errorf("no dead letter of %q %q", rec.Key, rec.Value)
			continue
		}
		if l.Reason != schemas.ReasonMalformed || l.Error == "" || string(l.Payload) != string(rec.Value) || (rec.Value == nil) != (l.Mark == schemas.PayloadNull) {
			t.Errorf("%q %q: dead of %s (%s) with %q, mark %q", rec.Key, rec.Value, l.Reason, l.Error, l.Payload, l.Mark)
		}
	}
	for _, r := range f.receiver.Log.All() {
		if r.Attempt != "1" {
			t.Errorf("%s came as attempt %s", r.DeliveryID, r.Attempt)
		}
	}
	f.once()
}

// An endpoint that is not known yet may be created just now: its deliveries wait.
func TestAnUnknownEndpointIsWaitedForAndStopsNobody(t *testing.T) {
	f := newFlow(t)
	f.endpoint("ep")
	f.ready(f.start())
	early := f.record("nobody", "early", []byte("{}"))
	testkit.Produce(t, f.client, early)
	f.send(1, 100, "ep")
	f.delivered(20 * time.Second)
	f.settled(20 * time.Second)
	waiting := 0
	for _, tier := range f.cfg.Retry.Tiers {
		for _, rec := range f.read(f.names().Retry(tier)) {
			d, err := schemas.ParseDelivery(rec)
			must(t, err)
			if d.EndpointID == "nobody" && d.Attempt == 0 && d.NotBefore.After(time.Now()) {
				waiting++
			}
		}
	}
	if waiting == 0 {
		t.Error("the delivery to an unknown endpoint does not wait in a tier")
	}
	f.awaitLetters(0)
}

func TestOneEventIDOfTwoSourcesIsTwoDeliveries(t *testing.T) {
	f := newFlow(t)
	f.endpoint("ep")
	f.endpoint("bad", preset("none"))
	f.receiver.Script("/bad", testkit.Status(400))
	f.ready(f.start())
	for _, ep := range []string{"ep", "bad"} {
		for _, source := range []string{"/a", "/b"} {
			rec := f.record(ep, "same", []byte(source))
			for i := range rec.Headers {
				if rec.Headers[i].Key == schemas.HeaderCESource {
					rec.Headers[i].Value = []byte(source)
				}
			}
			f.want(ep, source, "same", rec.Value)
			testkit.Produce(t, f.client, rec)
		}
	}
	f.delivered(20 * time.Second)
	letters := f.awaitLetters(2)
	f.settled(20 * time.Second)
	sources := make(map[string]bool)
	for _, l := range letters {
		sources[l.Event.Source] = true
	}
	if !sources["/a"] || !sources["/b"] {
		t.Errorf("dead letters are of %v", sources)
	}
	f.once()
}

// Producers partition in other ways than Milena: a record in another partition than
// its endpoint's is forwarded once, and sent by the endpoint's owner alone.
func TestAnotherPartitionersRecordsAreForwardedOnce(t *testing.T) {
	f := newFlow(t)
	const each = 20
	ids := f.endpoints(8)
	f.ready(f.start())
	f.ready(f.start())
	n := int32(f.cfg.Topics.Partitions)
	var recs []*kgo.Record
	misrouted := 0
	for i := range each {
		for _, ep := range ids {
			id := ep + "-" + strconv.Itoa(i)
			rec := f.record(ep, id, f.body(id, 200))
			rec.Partition = int32(i) % n
			if rec.Partition != kafka.Partition(rec.Key, n) {
				misrouted++
			}
			f.want(ep, "/test", id, rec.Value)
			recs = append(recs, rec)
		}
	}
	testkit.Produce(t, f.client, recs...)
	f.delivered(30 * time.Second)
	f.settled(20 * time.Second)
	f.once()
	forwarded := 0
	for _, rec := range f.read(f.names().Deliveries()) {
		d, err := schemas.ParseDelivery(rec)
		must(t, err)
		if d.Forwards > 1 {
			t.Errorf("%s was forwarded %d times", d.ID(), d.Forwards)
		}
		forwarded += d.Forwards
	}
	if forwarded != misrouted {
		t.Errorf("%d records were forwarded of %d that were misrouted", forwarded, misrouted)
	}
}
