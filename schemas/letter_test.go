package schemas_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

// inDLQ is the letter's record as it is read back.
func inDLQ(l *schemas.Letter) schemas.Record {
	rec := l.Record()
	rec.Topic, rec.Partition, rec.Offset, rec.Timestamp = "webhooks.dlq", 4, 17, recordTime.Add(time.Minute)
	return rec
}

func TestADeadLetterIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := schemas.NewLetter(genDelivery().Draw(t, "delivery"), rapid.SampledFrom(schemas.Reasons).Draw(t, "reason"),
			time.UnixMilli(rapid.Int64Range(1, 253402300799999).Draw(t, "died")).UTC())
		switch rapid.SampledFrom([]string{"", "null", "omitted"}).Draw(t, "mark") {
		case "null":
			l.Mark, l.Payload = schemas.PayloadNull, nil
		case "omitted":
			l.OmitPayload()
			if l.Event.ID == "" || l.Event.Source == "" || l.Event.Type == "" || l.Event.SpecVersion == "" {
				t.Skip("cleaned away")
			}
			l.Event.Structured = strings.Contains(strings.ToLower(l.Event.ContentType), "cloudevents")
		}
		rec := inDLQ(&l)
		if rec.Value == nil {
			t.Fatal("the value of a letter must not be null")
		}
		got, err := schemas.ParseLetter(rec)
		if err != nil {
			t.Fatal(err)
		}
		l.Partition, l.Offset = 4, 17
		if diff := cmp.Diff(l, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestEveryMalformedRecordBecomesALetterWithItsBytes(t *testing.T) {
	null := record("", "a", "b")
	null.Value = nil
	noKey := record("payload", "a", "b")
	noKey.Key = nil
	badKey := record("payload", "a", "b")
	badKey.Key = []byte("no endpoint\x00")
	for name, rec := range map[string]schemas.Record{
		"null": null, "no key": noKey, "bad key": badKey,
		"garbage header": record("\x00\xff", "milena-origin", ownOrigin, "milena-attempt", "\x00", "a", "b"),
		"bad schedule":   record("payload", "a", "b", "milena-not-before", "soon"),
		"batch":          record("[]", "content-type", schemas.ContentTypeBatch, "a", "b"),
		"structured":     record("{", "content-type", schemas.ContentTypeStructured, "a", "b"),
	} {
		t.Run(name, func(t *testing.T) {
			for generation := range 3 { // dies, is replayed, dies again …
				d, err := schemas.ParseDelivery(rec)
				if err == nil {
					t.Fatalf("generation %d is not malformed", generation)
				}
				l := schemas.NewLetter(d, schemas.ReasonMalformed, recordTime)
				got, err := schemas.ParseLetter(inDLQ(&l))
				if err != nil {
					t.Fatal(err)
				}
				if got.Reason != schemas.ReasonMalformed || got.Generation != generation || got.Origin != d.Origin ||
					!bytes.Equal(got.Payload, rec.Value) || got.Error == "" {
					t.Fatalf("generation %d: %+v", generation, got)
				}
				if (rec.Value == nil) != (got.Mark == schemas.PayloadNull) {
					t.Errorf("mark %q", got.Mark)
				}
				has := func(key string) bool {
					for _, h := range got.Extra {
						if h.Key == key {
							return true
						}
					}
					return false
				}
				if !has("a") || name == "bad key" && !has(schemas.HeaderKey) || name == "garbage header" && !has("milena-attempt") {
					t.Errorf("original headers are lost: %v", got.Extra)
				}
				got.Generation++
				rec = hop(&got.Delivery)
			}
		})
	}
}

func TestALetterIsBoundedWhateverTheProducerDid(t *testing.T) {
	big := strings.Repeat("ü", 200_000)
	rec := record(big, "ce_id", big, "ce_source", big, "ce_type", big, "x", big, "y", "small", "traceparent", big)
	d := mustParse(t, rec)
	d.Error = schemas.CleanError(big)
	size := func(rec schemas.Record) int {
		n := len(rec.Key) + len(rec.Value)
		for _, h := range rec.Headers {
			n += len(h.Key) + len(h.Value)
		}
		return n
	}
	l := schemas.NewLetter(d, schemas.ReasonTooLarge, recordTime)
	if grown := size(l.Record()) - size(rec); grown > 4096 {
		t.Errorf("a letter is %d bytes larger than its record", grown)
	}
	l.OmitPayload()
	if got := size(l.Record()); got > 32<<10 {
		t.Errorf("%d bytes without payload", got)
	}
	got, err := schemas.ParseLetter(inDLQ(&l))
	if err != nil {
		t.Fatal(err)
	}
	if got.Mark != schemas.PayloadOmitted || got.Payload != nil || len(got.Extra) != 1 || got.Extra[0].Key != "y" {
		t.Errorf("%+v", got.Extra)
	}
}

func TestTheKeyOfALetterTellsDeliveryAndGeneration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := genOrigin().Draw(t, "origin").String() + "." + rapid.OneOf(genEndpointID(), rapid.Just("")).Draw(t, "endpoint")
		gen := rapid.IntRange(0, 1<<31-1).Draw(t, "generation")
		gotID, gotGen, err := schemas.ParseLetterKey(schemas.LetterKey(id, gen))
		if err != nil || gotID != id || gotGen != gen {
			t.Fatal(gotID, gotGen, err)
		}
	})
	for _, bad := range []string{"", ".", "x", ".0", "a.b", ownOrigin + ".ep", ownOrigin + ".ep.", ownOrigin + ".ep.x", ownOrigin + ".ep.-1",
		ownOrigin + ".ep.01", ownOrigin + ".ep.4294967296", ownOrigin + ".e p.1", "orders.ep.1"} {
		if _, _, err := schemas.ParseLetterKey(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestWhatMilenaDidNotWriteIsNoLetter(t *testing.T) {
	l := schemas.NewLetter(mustParse(t, record("x", "ce_id", "1")), schemas.ReasonGone, recordTime)
	change := func(f func(*schemas.Record)) schemas.Record { rec := inDLQ(&l); f(&rec); return rec }
	drop := func(name string) func(*schemas.Record) {
		return func(rec *schemas.Record) {
			var kept []schemas.Header
			for _, h := range rec.Headers {
				if h.Key != name {
					kept = append(kept, h)
				}
			}
			rec.Headers = kept
		}
	}
	for name, rec := range map[string]schemas.Record{
		"tombstone":      change(func(r *schemas.Record) { r.Value = nil }),
		"no key":         change(func(r *schemas.Record) { r.Key = nil }),
		"other delivery": change(func(r *schemas.Record) { r.Key = []byte(ownOrigin + ".ep_1.0") }),
		"other death":    change(func(r *schemas.Record) { r.Key = []byte(l.ID() + ".1") }),
		"no origin":      change(drop(schemas.HeaderOrigin)),
		"no reason":      change(drop(schemas.HeaderReason)),
		"no endpoint":    change(drop(schemas.HeaderEndpoint)),
	} {
		_, err := schemas.ParseLetter(rec)
		var bad *schemas.MalformedError
		if !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseLetter(f *testing.F) {
	d, _ := schemas.ParseDelivery(record("x"))
	l := schemas.NewLetter(d, schemas.ReasonGone, recordTime)
	f.Add([]byte(l.Key()), []byte("x"), []byte(d.Origin.String()), []byte("ep_1"), "milena-attempt", []byte("1"))
	f.Fuzz(func(t *testing.T, key, value, origin, endpoint []byte, k string, v []byte) {
		rec := schemas.Record{Topic: "dlq", Key: key, Value: value, Headers: []schemas.Header{{Key: "milena-origin", Value: origin},
			{Key: "milena-endpoint", Value: endpoint}, {Key: "milena-reason", Value: []byte("gone")}, {Key: k, Value: v}}}
		got, err := schemas.ParseLetter(rec)
		if err != nil {
			return
		}
		again, err := schemas.ParseLetter(inDLQ(&got))
		if err != nil {
			t.Fatal(err)
		}
		if again.Key() != got.Key() || !bytes.Equal(again.Payload, got.Payload) {
			t.Fatalf("%+v became %+v", got, again)
		}
	})
}
