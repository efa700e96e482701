package flowtest

import (
	"bytes"
	"crypto/sha256"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/testkit"
)

func TestInvariant10EveryAttemptSendsTheProducersBytesAndASignatureOfThem(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16-32) // with its headers just below 1 MiB
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	structured := `{"specversion":"1.0","id":"s1","source":"/structured","type":"thing.happened", "data" : {"a": 1.0, "b":"\u00e9"}}` + "\n"
	type payload struct {
		name, source, id string
		body             []byte
		headers          []kgo.RecordHeader // in place of the usual ones
	}
	payloads := []payload{
		{name: "empty", source: "/test", id: "empty", body: []byte{}},
		{name: "binary", source: "/test", id: "binary", body: binary},
		{name: "crlf", source: "/test", id: "crlf", body: []byte("\r\n\r\n0\r\n\r\n")},
		{name: "megabyte", source: "/test", id: "megabyte", body: big},
		{name: "structured", source: "/structured", id: "s1", body: []byte(structured), headers: []kgo.RecordHeader{
			{Key: "content-type", Value: []byte("application/cloudevents+json; charset=utf-8")},
		}},
	}
	f := newFlow(t, testkit.KeepBodies())
	f.ready(f.start())
	for _, p := range payloads {
		f.endpoint(p.name, schedule(100*time.Millisecond, 100*time.Millisecond))
		f.receiver.Script("/"+p.name, testkit.Sequence(testkit.Answer{Status: 503}, testkit.Answer{Status: 500}, testkit.Answer{}))
		rec := f.record(p.name, p.id, p.body)
		if p.headers != nil {
			rec.Headers = p.headers
		}
		f.want(p.name, p.source, p.id, p.body)
		testkit.Produce(t, f.client, rec)
	}
	f.awaitDelivered(len(payloads))
	f.delivered(10 * time.Second)
	f.settled(20 * time.Second)
	for _, p := range payloads {
		t.Run(p.name, func(t *testing.T) { checkAttempts(t, f.receiver.Log.All("/"+p.name), p.body) })
	}
}

func checkAttempts(t *testing.T, got []testkit.Received, body []byte) {
	t.Helper()
	if len(got) != 3 {
		t.Fatalf("%d attempts, not 3", len(got))
	}
	for i, r := range got {
		if r.Sum != sha256.Sum256(body) || !bytes.Equal(r.Body, body) {
			t.Errorf("attempt %d sent %d other bytes than the producer's %d", i+1, r.Size, len(body))
		}
		if r.Attempt != strconv.Itoa(i+1) || r.MessageID != got[0].MessageID || r.DeliveryID != got[0].DeliveryID {
			t.Errorf("attempt %d came as %s of %s, %s", i+1, r.Attempt, r.DeliveryID, r.MessageID)
		}
		if n := r.Header.Get("Content-Length"); n != strconv.Itoa(len(body)) {
			t.Errorf("attempt %d had content-length %q", i+1, n)
		}
		if r.Invalid != nil {
			t.Errorf("attempt %d: %v", i+1, r.Invalid)
		}
	}
}
