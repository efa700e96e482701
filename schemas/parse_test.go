package schemas_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

func h(kv ...string) []schemas.Header {
	var hs []schemas.Header
	for i := 0; i < len(kv); i += 2 {
		hs = append(hs, schemas.Header{Key: kv[i], Value: []byte(kv[i+1])})
	}
	return hs
}

var recordTime = time.UnixMilli(1_764_500_000_123).UTC()

// record is one that a producer wrote to deliveries.
func record(value string, kv ...string) schemas.Record {
	return schemas.Record{
		Topic: "webhooks.deliveries", TopicID: [16]byte{0xa1, 0xb2, 0xc3, 0xd4, 5}, Partition: 7, Offset: 42,
		Timestamp: recordTime, Key: []byte("ep_1"), Value: []byte(value), Headers: h(kv...),
	}
}

func mustParse(t testing.TB, rec schemas.Record) schemas.Delivery {
	t.Helper()
	d, err := schemas.ParseDelivery(rec)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// hop is the record that Milena writes for d, read from another topic.
func hop(d *schemas.Delivery) schemas.Record {
	return schemas.Record{Topic: "webhooks.retry.1m", Partition: 1, Offset: 3, Timestamp: recordTime.Add(time.Hour),
		Key: []byte(d.EndpointID), Value: d.Payload, Headers: d.Headers()}
}

const ownOrigin = "orders-a1b2c3d4-3-99"

func TestARecordWithoutHeadersGetsDefaultsThatEveryHopKeeps(t *testing.T) {
	d := mustParse(t, record("x"))
	want := schemas.Delivery{
		EndpointID: "ep_1",
		Event:      schemas.Event{ID: "webhooks.deliveries-7-42", Source: "webhooks.deliveries", Type: "event", SpecVersion: "1.0"},
		Payload:    []byte("x"),
		Origin:     schemas.Origin{Topic: "webhooks.deliveries", TopicID: [4]byte{0xa1, 0xb2, 0xc3, 0xd4}, Partition: 7, Offset: 42},
		Enqueued:   recordTime,
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Fatal(diff)
	}
	if got := d.ID(); got != "webhooks.deliveries-a1b2c3d4-7-42.ep_1" {
		t.Errorf("delivery id %s", got)
	}
	if diff := cmp.Diff(want, mustParse(t, hop(&d))); diff != "" {
		t.Errorf("after a hop: %s", diff)
	}
}

func TestBinaryAttributesAreReadAndUnknownHeadersPassInOrder(t *testing.T) {
	d := mustParse(t, record("{}", "x-b", "2", "ce_id", "1", "ce_source", "/s", "ce_type", "t", "ce_time", "2026-01-02T03:04:05Z",
		"ce_subject", "sub", "ce_tenant", "acme", "ce_specversion", "1.0", "Content-Type", "application/json",
		"traceparent", "00-1", "tracestate", "a=b", "ce_ext", "e", "x-a", "1", "x-b", "3", "ce_id", "second", "x-nil", ""))
	want := schemas.Event{ID: "1", Source: "/s", Type: "t", Time: "2026-01-02T03:04:05Z", Subject: "sub", Tenant: "acme",
		SpecVersion: "1.0", ContentType: "application/json"}
	if diff := cmp.Diff(want, d.Event); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(h("x-b", "2", "ce_ext", "e", "x-a", "1", "x-b", "3", "x-nil", ""), d.Extra); diff != "" {
		t.Error(diff)
	}
	if d.Traceparent != "00-1" || d.Tracestate != "a=b" {
		t.Errorf("trace context %q %q", d.Traceparent, d.Tracestate)
	}
}

func TestAProducerCannotInventMilenasHeaders(t *testing.T) {
	forged := []string{"milena-attempt", "8", "milena-generation", "x", "milena-enqueued", "1", "milena-released", "5",
		"milena-run", "r", "milena-new", "n", "Milena-Attempt", "3", "milena-reason", "gone", "milena-claim", "7"}
	for name, origin := range map[string][]string{
		"no origin":         nil,
		"garbage":           {"milena-origin", "garbage"},
		"empty":             {"milena-origin", ""},
		"upper-case hex":    {"milena-origin", "orders-A1B2C3D4-3-99"},
		"leading zero":      {"milena-origin", "orders-a1b2c3d4-03-99"},
		"sign":              {"milena-origin", "orders-a1b2c3d4-3-+99"},
		"no topic":          {"milena-origin", "-a1b2c3d4-3-99"},
		"no topic name":     {"milena-origin", "or ders-a1b2c3d4-3-99"},
		"too large":         {"milena-origin", "orders-a1b2c3d4-3-9223372036854775808"},
		"partition":         {"milena-origin", "orders-a1b2c3d4-2147483648-1"},
		"its own place":     {"milena-origin", "webhooks.deliveries-a1b2c3d4-7-42"},
		"behind its place":  {"milena-origin", "webhooks.deliveries-a1b2c3d4-7-43"},
		"topic of 250 long": {"milena-origin", strings.Repeat("t", 250) + "-a1b2c3d4-3-99"},
	} {
		t.Run(name, func(t *testing.T) {
			got := mustParse(t, record("x", append(origin, forged...)...))
			if diff := cmp.Diff(mustParse(t, record("x")), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAConsistentOriginMakesMilenasHeadersCount(t *testing.T) {
	for _, origin := range []string{ownOrigin, "webhooks.deliveries-a1b2c3d4-7-41", "webhooks.deliveries-ffffffff-7-42",
		"a-b-c-00000000-0-0", "-x-00000000-2147483647-9223372036854775807"} {
		d := mustParse(t, record("x", "milena-origin", origin, "milena-attempt", "3", "milena-enqueued", "1764000000000",
			"milena-new", "n", "x", "y"))
		if d.Origin.String() != origin || d.Attempt != 3 || d.Enqueued.UnixMilli() != 1764000000000 {
			t.Errorf("%s: %+v", origin, d)
		}
		if diff := cmp.Diff(h("milena-new", "n", "x", "y"), d.Extra); diff != "" {
			t.Errorf("a newer Milena's header: %s", diff)
		}
	}
}

func TestTheOriginDecidesTheDefaultsAfterTheFirstHop(t *testing.T) {
	d := mustParse(t, record("x", "milena-origin", ownOrigin))
	if d.Event.ID != "orders-3-99" || d.Event.Source != "orders" {
		t.Errorf("%+v", d.Event)
	}
	if !d.Enqueued.Equal(recordTime) {
		t.Errorf("enqueued %v: the record's time where the header is missing", d.Enqueued)
	}
}

func TestGarbageInMilenasOwnHeadersIsMalformedAndNamed(t *testing.T) {
	for _, tc := range [][2]string{
		{"milena-attempt", "x"}, {"milena-attempt", "-1"}, {"milena-attempt", ""}, {"milena-attempt", "2147483648"},
		{"milena-attempt", "99999999999999999999999"}, {"milena-attempt", "1e3"}, {"milena-attempt", "\x00\xff"},
		{"milena-generation", "1.5"}, {"milena-enqueued", "yesterday"}, {"milena-enqueued", "253402300800000"},
		{"milena-first-attempt", "+5"}, {"milena-not-before", " 5"}, {"milena-hop-until", "0x10"}, {"milena-released", "-"},
		{"milena-forwards", "many"}, {"milena-last-status", "1000"}, {"milena-claim", "9223372036854775808"},
		{"milena-error-class", "a b"}, {"milena-error-class", strings.Repeat("c", 129)}, {"milena-run", "\n"},
		{"milena-resend-of", "nothing"},
	} {
		rec := record("x", "ce_id", "7", "milena-origin", ownOrigin, "milena-attempt", "2", "a", "b")
		if tc[0] == "milena-attempt" {
			rec.Headers = h("milena-origin", ownOrigin, "a", "b")
		}
		rec.Headers = append(rec.Headers, h(tc[0], tc[1])...)
		d, err := schemas.ParseDelivery(rec)
		var bad *schemas.MalformedError
		if !errors.As(err, &bad) || !strings.Contains(bad.Why, tc[0]) {
			t.Errorf("%v: %v", tc, err)
			continue
		}
		if tc[1] != "" && tc[1][0] > ' ' && tc[1][0] < 0x7f && !strings.Contains(bad.Why, tc[1][:min(len(tc[1]), 60)]) {
			t.Errorf("%q does not tell the value of %v", bad.Why, tc)
		}
		if d.Origin.String() != ownOrigin || d.EndpointID != "ep_1" || string(d.Payload) != "x" || d.Error == "" {
			t.Errorf("%v: what can be read is lost: %+v", tc, d)
		}
		if diff := cmp.Diff(h("a", "b", tc[0], tc[1]), d.Extra); diff != "" {
			t.Errorf("%v: the header itself must be kept: %s", tc, diff)
		}
	}
}

func TestAProducerMaySchedule(t *testing.T) {
	d := mustParse(t, record("x", "milena-not-before", "1764600000000", "milena-resend-of", ownOrigin+".ep_9"))
	if d.NotBefore.UnixMilli() != 1764600000000 || d.ResendOf != ownOrigin+".ep_9" {
		t.Errorf("%+v", d)
	}
	for bad, text := range map[string]string{
		"tomorrow": "unix milliseconds", "": "unix milliseconds", "-5": "unix milliseconds", "1764600000.5": "unix milliseconds",
		"2026-01-01T00:00:00Z": "unix milliseconds", "99999999999999999999": "unix milliseconds", "1764600000": "not seconds",
	} {
		_, err := schemas.ParseDelivery(record("x", "milena-not-before", bad))
		if err == nil || !strings.Contains(err.Error(), "milena-not-before") || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if d := mustParse(t, record("x", "milena-resend-of", ownOrigin+".ep_9", "milena-run", "run-1")); d.Run != "run-1" {
		t.Errorf("the run of a resend: %+v", d)
	}
	if d := mustParse(t, record("x", "milena-resend-of", ownOrigin+".ep_9", "milena-run", "run 1")); d.Run != "" || d.ResendOf == "" || d.Extra != nil {
		t.Errorf("a bad run is dropped: %+v", d)
	}
	if d := mustParse(t, record("x", "milena-run", "run-1")); d.Run != "" {
		t.Errorf("the run of what is no resend: %+v", d)
	}
	if d := mustParse(t, record("x", "milena-resend-of", "garbage")); d.ResendOf != "" || d.Extra != nil {
		t.Errorf("a bad pointer is dropped: %+v", d)
	}
}

func TestWhatIsNoDeliveryIsMalformed(t *testing.T) {
	null := record("")
	null.Value = nil
	key := func(k string) schemas.Record { r := record("x", "a", "b"); r.Key = []byte(k); return r }
	for name, tc := range map[string]struct {
		rec schemas.Record
		why string
	}{
		"null value":    {null, "null"},
		"batch":         {record("[]", "content-type", "application/cloudevents-batch+json; charset=utf-8"), "batch"},
		"no key":        {key(""), "no key"},
		"dot in key":    {key("a.b"), `"a.b"`},
		"long key":      {key(strings.Repeat("k", 65)), "1 to 64"},
		"binary key":    {key("\x00\xff"), `"\x00\xff"`},
		"slash":         {key("a/b"), "a/b"},
		"not JSON":      {record("{", "content-type", schemas.ContentTypeStructured), "not JSON"},
		"no object":     {record("[1]", "content-type", schemas.ContentTypeStructured), "not a JSON object"},
		"id no string":  {record(`{"id":5}`, "content-type", schemas.ContentTypeStructured), "attribute id"},
		"huge subject":  {record(`{"id":"1","subject":"`+strings.Repeat("s", 20000)+`"}`, "content-type", schemas.ContentTypeStructured), "20001"},
		"empty as JSON": {record("", "content-type", schemas.ContentTypeStructured), "not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := schemas.ParseDelivery(tc.rec)
			var bad *schemas.MalformedError
			if !errors.As(err, &bad) || !strings.Contains(bad.Why, tc.why) {
				t.Fatalf("%v", err)
			}
			if d.Origin.IsZero() || !bytes.Equal(d.Payload, tc.rec.Value) || d.Error == "" {
				t.Errorf("%+v", d)
			}
		})
	}
	d, _ := schemas.ParseDelivery(key(strings.Repeat("k", 5000)))
	if len(d.Extra) != 2 || d.Extra[1].Key != schemas.HeaderKey || len(d.Extra[1].Value) != schemas.MaxKeyLen {
		t.Errorf("the key is kept, bounded: %d headers", len(d.Extra))
	}
}

func TestMalformedRecordsDoNotGrowWhenTheyAreReplayed(t *testing.T) {
	rec := record("x", "a", "b", "milena-not-before", "junk")
	rec.Key = []byte("bad key")
	d, err := schemas.ParseDelivery(rec)
	size := func(hs []schemas.Header) (n int) {
		for _, h := range hs {
			n += len(h.Key) + len(h.Value)
		}
		return n
	}
	if err == nil {
		t.Fatal("not malformed")
	}
	first := size(d.Headers())
	for range 5 {
		if d, err = schemas.ParseDelivery(hop(&d)); err == nil {
			t.Fatal("a replay must be malformed again")
		}
	}
	if got := size(d.Headers()); got > first+40 {
		t.Errorf("%d bytes of headers after five replays, %d at first", got, first)
	}
	if d.Origin.Offset != rec.Offset {
		t.Errorf("origin %v", d.Origin)
	}
}

func TestStructuredEventsAreReadFromTheValueOnceAndSentAsTheyAre(t *testing.T) {
	value := ` {"specversion" : "1.0", "\u0069d":"a\"1", "source":"/x\u00e9", "type":"t", "time":"2026-01-01T00:00:00Z",` +
		` "subject":null, "tenant":"acme", "traceparent":"00-2", "n":[1,{"id":"inner"}], "data":{"id":"no","s":"}\""}, "z":-1.5e3 } `
	rec := record(value, "content-type", "application/cloudevents+json; charset=UTF-8", "ce_id", "ignored")
	d := mustParse(t, rec)
	want := schemas.Event{ID: `a"1`, Source: "/xé", Type: "t", Time: "2026-01-01T00:00:00Z", Tenant: "acme", SpecVersion: "1.0",
		ContentType: "application/cloudevents+json; charset=UTF-8", Structured: true}
	if diff := cmp.Diff(want, d.Event); diff != "" {
		t.Error(diff)
	}
	if d.Traceparent != "00-2" || string(d.Payload) != value {
		t.Errorf("%+v", d)
	}
	if diff := cmp.Diff(d, mustParse(t, hop(&d))); diff != "" {
		t.Errorf("after a hop: %s", diff)
	}
	if d := mustParse(t, record(`{}`, "content-type", schemas.ContentTypeStructured)); d.Event.ID != "webhooks.deliveries-7-42" {
		t.Errorf("defaults where the value has none: %+v", d.Event)
	}
	if d := mustParse(t, record("\x00avro", "content-type", "application/cloudevents+avro")); !d.Event.Structured || d.Event.Type != "event" {
		t.Errorf("another format goes on as it is: %+v", d.Event)
	}
}

func TestASourceRecordNeedsNoKeyAndNoOriginCounts(t *testing.T) {
	rec := record("x", "ce_id", "1", "milena-origin", ownOrigin, "milena-attempt", "4", "milena-not-before", "1764600000000")
	rec.Topic, rec.Key = "orders", []byte("any thing")
	d, err := schemas.ParseSource(rec)
	if err != nil {
		t.Fatal(err)
	}
	if d.EndpointID != "" || !d.Enqueued.IsZero() || d.Attempt != 0 || d.Origin.Topic != "orders" || d.Event.Source != "orders" ||
		d.NotBefore.IsZero() || d.Extra != nil {
		t.Errorf("%+v", d)
	}
	d.EndpointID = "ep_2"
	got := mustParse(t, hop(&d))
	if got.Origin != d.Origin || !got.Enqueued.Equal(recordTime.Add(time.Hour)) {
		t.Errorf("enqueued counts from the first deliveries record: %+v", got)
	}
	rec.Value = nil
	if _, err := schemas.ParseSource(rec); err == nil {
		t.Error("a tombstone of a source is no event")
	}
}

func TestEnqueuedIsUnknownWithoutATimestamp(t *testing.T) {
	rec := record("x")
	for _, ts := range []time.Time{{}, time.UnixMilli(-1), time.UnixMilli(0)} {
		rec.Timestamp = ts
		if d := mustParse(t, rec); !d.Enqueued.IsZero() {
			t.Errorf("%v: %v", ts, d.Enqueued)
		}
	}
}

func TestADeliveryComesThroughAHopUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := genDelivery().Draw(t, "delivery")
		got, err := schemas.ParseDelivery(hop(&d))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestANewDeliveryCarriesNoHeadersOfMilenasButThree(t *testing.T) {
	d := schemas.Delivery{EndpointID: "e", Event: schemas.Event{ID: "1", Source: "s"}, Attempt: 3, Run: "r", Error: "e",
		NotBefore: time.UnixMilli(1764600000000), ResendOf: ownOrigin + ".e", Generation: 2}
	want := h("ce_id", "1", "ce_source", "s", "milena-not-before", "1764600000000", "milena-resend-of", ownOrigin+".e", "milena-run", "r")
	if diff := cmp.Diff(want, d.Headers()); diff != "" {
		t.Error(diff)
	}
	d.ResendOf = ""
	if diff := cmp.Diff(want[:3], d.Headers()); diff != "" {
		t.Error(diff)
	}
}

func TestHeaderValuesDoNotShareSpace(t *testing.T) {
	d := mustParse(t, record("x", "ce_id", "1"))
	hs := d.Headers()
	_ = append(hs[0].Value, "overwritten"...)
	if string(hs[1].Value) != "1" {
		t.Errorf("an append wrote into the next value: %q", hs[1].Value)
	}
}

func TestTheHotPathAllocatesLittle(t *testing.T) {
	first := record("{}", "ce_id", "1", "ce_source", "/s", "ce_type", "t", "content-type", "application/json")
	d := mustParse(t, first)
	again := hop(&d)
	for name, tc := range map[string]struct {
		limit float64
		f     func()
	}{
		"first hop":  {1, func() { _, _ = schemas.ParseDelivery(first) }},
		"second hop": {1, func() { _, _ = schemas.ParseDelivery(again) }},
		"headers":    {2, func() { _ = d.Headers() }},
	} {
		if got := testing.AllocsPerRun(100, tc.f); got > tc.limit {
			t.Errorf("%s: %v allocations, want at most %v", name, got, tc.limit)
		}
	}
}
