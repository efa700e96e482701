package schemas_test

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/milena-project/milena/schemas"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden: only for a change of the wire format that old readers bear")

// goldenText writes key, headers and value of a record, one a line, quoted.
func goldenText(rec schemas.Record) string {
	var b strings.Builder
	b.WriteString("key " + strconv.QuoteToASCII(string(rec.Key)) + "\n")
	for _, h := range rec.Headers {
		b.WriteString("header " + h.Key + " " + strconv.QuoteToASCII(string(h.Value)) + "\n")
	}
	value := "null"
	if rec.Value != nil {
		value = strconv.QuoteToASCII(string(rec.Value))
	}
	b.WriteString("value " + value + "\n")
	return b.String()
}

// readGolden reads the bytes that an older version wrote.
func readGolden(t *testing.T, name string) (rec schemas.Record) {
	t.Helper()
	b, err := os.ReadFile(goldenFile(name))
	if err != nil {
		t.Fatal(err)
	}
	unquote := func(s string) []byte {
		v, err := strconv.Unquote(s)
		if err != nil {
			t.Fatal(s, err)
		}
		return []byte(v)
	}
	for line := range strings.Lines(string(b)) {
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch kind {
		case "key":
			rec.Key = unquote(rest)
		case "header":
			key, value, _ := strings.Cut(rest, " ")
			rec.Headers = append(rec.Headers, schemas.Header{Key: key, Value: unquote(value)})
		case "value":
			rec.Value = unquote(rest)
		}
	}
	return rec
}

func goldenFile(name string) string { return filepath.Join("testdata", name+".golden") }

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(goldenFile(name), []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenFile(name))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: the wire format changed, and records of this kind are in people's Kafka:\n%s", name, diff)
	}
}

// lives are the stations of one delivery.
func lives(t *testing.T) (stations map[string]schemas.Delivery) {
	first := mustParse(t, record("{\"n\":1}\x00\xff", "ce_specversion", "1.0", "ce_id", "evt-1", "ce_source", "/shop/orders", "ce_type", "order.created",
		"ce_time", "2025-11-30T10:53:20Z", "ce_subject", "Bestellung ü", "ce_tenant", "acme", "content-type", "application/json",
		"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate", "k=v", "x-shop", "7", "ce_dataschema", "urn:x"))
	parked := first
	parked.Attempt, parked.FirstAttempt = 1, recordTime.Add(20*time.Millisecond)
	parked.NotBefore, parked.HopUntil = recordTime.Add(time.Minute), recordTime.Add(time.Minute)
	parked.LastStatus, parked.Error = 503, "503 Service Unavailable"
	released := parked
	released.HopUntil, released.Released = time.Time{}, recordTime.Add(time.Minute)
	held := released
	held.Claim, held.Forwards = 4711, 1
	replayed := first
	replayed.Generation, replayed.Run, replayed.Enqueued = 1, "run-1", recordTime.Add(time.Hour)
	structured := mustParse(t, record(`{"specversion":"1.0","id":"evt-2","source":"/s","type":"t","data":{}}`, "content-type", schemas.ContentTypeStructured))
	timedOut := parked
	timedOut.LastStatus, timedOut.ErrorClass, timedOut.Error = 0, schemas.ClassTimeout, "no answer within 15s"
	return map[string]schemas.Delivery{"first-hop": first, "parked": parked, "parked-timeout": timedOut, "released": released, "held": held, "replayed": replayed,
		"structured": structured, "defaults": mustParse(t, record("x"))}
}

func TestDeliveriesKeepTheirBytes(t *testing.T) {
	for name, d := range lives(t) {
		t.Run(name, func(t *testing.T) {
			golden(t, name, goldenText(hop(&d)))
			rec := readGolden(t, name)
			rec.Topic, rec.Timestamp = "webhooks.hold", recordTime.Add(48*time.Hour)
			if diff := cmp.Diff(d, mustParse(t, rec)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDeadLettersKeepTheirBytes(t *testing.T) {
	parked := lives(t)["parked"]
	null := record("")
	null.Value = nil
	malformed, _ := schemas.ParseDelivery(null)
	garbage := record("raw\x00", "milena-not-before", "soon", "x-a", "b")
	garbage.Key = []byte("no endpoint")
	unreadable, _ := schemas.ParseDelivery(garbage)
	tooLarge := schemas.NewLetter(parked, schemas.ReasonTooLarge, recordTime.Add(time.Minute))
	tooLarge.OmitPayload()
	for name, l := range map[string]schemas.Letter{
		"dead":           schemas.NewLetter(parked, schemas.ReasonExhausted, recordTime.Add(time.Minute)),
		"dead-null":      schemas.NewLetter(malformed, schemas.ReasonMalformed, recordTime),
		"dead-malformed": schemas.NewLetter(unreadable, schemas.ReasonMalformed, recordTime),
		"dead-too-large": tooLarge,
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, name, goldenText(l.Record()))
			got, err := schemas.ParseLetter(readGolden(t, name))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(l, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAttemptRecordsKeepTheirBytes(t *testing.T) {
	a := benchAttempt()
	a.Reason, a.Outcome, a.Generation, a.Run, a.ResendOf, a.ErrorClass = schemas.ReasonExhausted, schemas.OutcomeDead, 1, "run-1", ownOrigin+".ep_1", schemas.ClassTimeout
	a.ResponseHeaders, a.ResponseBody, a.ResponseTruncated = []schemas.Pair{{Name: "Retry-After", Value: "5"}}, "zu spät\n\x1b\u2028\"\\", true
	golden(t, "attempt", string(schemas.AppendAttempt(nil, &a))+"\n")
}
