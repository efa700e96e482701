package schemas_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/milena-project/milena/schemas"
)

func FuzzParseDelivery(f *testing.F) {
	f.Add([]byte("ep"), []byte("x"), "milena-origin", []byte(ownOrigin), "milena-attempt", []byte("x"))
	f.Add([]byte("ep"), []byte(`{"id":"1","source":"s"}`), "content-type", []byte(schemas.ContentTypeStructured), "ce_id", []byte("1"))
	f.Add([]byte("e.p"), []byte(`{"a\u0000":[{}]}`), "Content-type", []byte("application/cloudevents-batch+json"), "x", []byte{})
	f.Fuzz(func(t *testing.T, key, value []byte, k1 string, v1 []byte, k2 string, v2 []byte) {
		rec := schemas.Record{Topic: "t", Partition: 1, Offset: 9, Timestamp: recordTime, Key: key, Value: value,
			Headers: []schemas.Header{{Key: k1, Value: v1}, {Key: k2, Value: v2}}}
		d, err := schemas.ParseDelivery(rec)
		if d.Origin.IsZero() || !bytes.Equal(d.Payload, value) {
			t.Fatalf("origin and payload must always be there: %+v", d)
		}
		if err != nil {
			return
		}
		again, err := schemas.ParseDelivery(hop(&d))
		if err != nil {
			t.Fatalf("what was a delivery is malformed after a hop: %v", err)
		}
		if diff := cmp.Diff(d, again); diff != "" {
			t.Fatalf("changed by a hop: %s", diff)
		}
	})
}

func benchRecord() schemas.Record {
	return record(strings.Repeat("x", 1024), "ce_specversion", "1.0", "ce_id", "evt-0192837465", "ce_source", "/shop/orders", "ce_type", "order.created",
		"ce_time", "2026-11-30T18:00:00Z", "ce_subject", "order/17", "ce_tenant", "acme", "content-type", "application/json",
		"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "x-shop", "7")
}

func BenchmarkParseDelivery(b *testing.B) {
	first := benchRecord()
	d := mustParse(b, first)
	d.Attempt, d.FirstAttempt, d.Released, d.LastStatus, d.Error = 2, recordTime, recordTime, 503, "503 Service Unavailable"
	structured := record(fmt.Sprintf(`{"specversion":"1.0","id":"1","source":"/s","type":"t","data":%q}`, strings.Repeat("x", 1024)),
		"content-type", schemas.ContentTypeStructured)
	for name, rec := range map[string]schemas.Record{"first": first, "released": hop(&d), "bare": record("x"), "structured": structured} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := schemas.ParseDelivery(rec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDeliveryHeaders(b *testing.B) {
	d := mustParse(b, benchRecord())
	d.Attempt, d.FirstAttempt, d.NotBefore, d.HopUntil, d.LastStatus, d.Error = 2, recordTime, recordTime, recordTime, 503, "503 Service Unavailable"
	b.ReportAllocs()
	for b.Loop() {
		_ = d.Headers()
	}
}
