package schemas_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

func genAttempt(maxText int) *rapid.Generator[schemas.Attempt] {
	text := rapid.OneOf(rapid.StringN(0, maxText, maxText), rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, maxText), func(b []byte) string { return string(b) }),
		rapid.SampledFrom([]string{"", "\u2028\u2029", "\x00\x1f\x7f\u0080", `"\/<>&`, "\ufffd", "a\xc3", "💌"}))
	instant := rapid.Custom(func(t *rapid.T) time.Time {
		at := time.Unix(rapid.Int64Range(-62135510400, 253402214399).Draw(t, "s"), rapid.SampledFrom([]int64{0, 1, 1000, 5_000_000, 999_999_999}).Draw(t, "ns"))
		return at.In(time.FixedZone("x", rapid.SampledFrom([]int{0, 3600, -7200}).Draw(t, "zone")))
	})
	number := rapid.IntRange(-5, math.MaxInt32)
	float := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 10_000), rapid.SampledFrom([]float64{0, 1, 1e21, 1e-7, 123456789012345678, 0.1, -1.5}))
	return rapid.Custom(func(t *rapid.T) schemas.Attempt {
		s := func(name string) string { return text.Draw(t, name) }
		a := schemas.Attempt{
			DeliveryID: s("delivery"), MessageID: s("message"), EndpointID: s("endpoint"), Tenant: s("tenant"), EventID: s("event"),
			Source: s("source"), Type: s("type"), Subject: s("subject"), Outcome: schemas.Outcome(s("outcome")), Reason: schemas.Reason(s("reason")),
			Number: number.Draw(t, "number"), Generation: number.Draw(t, "generation"), Run: s("run"), ResendOf: s("resend"), Origin: s("origin"),
			Status: number.Draw(t, "status"), ErrorClass: schemas.ErrorClass(s("class")), Error: s("error"), URL: s("url"),
			Started: instant.Draw(t, "started"), Duration: float.Draw(t, "duration"), Delay: float.Draw(t, "delay"),
			Bytes: number.Draw(t, "bytes"), ResponseBody: s("body"), ResponseTruncated: rapid.Bool().Draw(t, "truncated"),
		}
		if rapid.Bool().Draw(t, "times") {
			a.NotBefore, a.NextTry = instant.Draw(t, "not before"), instant.Draw(t, "next try")
		}
		for range rapid.IntRange(0, 20).Draw(t, "headers") {
			a.ResponseHeaders = append(a.ResponseHeaders, schemas.Pair{Name: s("name"), Value: s("value")})
		}
		return a
	})
}

func read(t interface{ Fatalf(string, ...any) }, b []byte) (a schemas.Attempt) {
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return a
}

func TestAnAttemptMeansWhatEncodingJSONWouldWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := genAttempt(30).Draw(t, "attempt")
		theirs, err := json.Marshal(&a)
		if err != nil {
			t.Fatalf("%v", err)
		}
		ours := schemas.AppendAttempt([]byte("before"), &a)[len("before"):]
		if len(ours) == schemas.MaxAttemptLen || len(theirs) > 7000 {
			t.Skip("cut")
		}
		if diff := cmp.Diff(read(t, theirs), read(t, ours)); diff != "" {
			t.Fatalf("%s\nours %s\ntheirs %s", diff, ours, theirs)
		}
	})
}

func TestAnAttemptIsValidAndBoundedWhateverIsInIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := genAttempt(60).Draw(t, "attempt")
		long := rapid.SampledFrom([]string{"", strings.Repeat("x", 20<<10), strings.Repeat("\x00", 9000), strings.Repeat("💌", 5000)})
		for _, s := range []*string{&a.ResponseBody, &a.EventID, &a.Subject, &a.URL} {
			*s += long.Draw(t, "long")
		}
		if rapid.Bool().Draw(t, "long header") {
			a.ResponseHeaders = append(a.ResponseHeaders, schemas.Pair{Name: "x", Value: long.Draw(t, "header")})
		}
		b := schemas.AppendAttempt(nil, &a)
		if len(b) > schemas.MaxAttemptLen {
			t.Fatalf("%d bytes", len(b))
		}
		got := read(t, b)
		if len(got.ResponseBody) < len(strings.ToValidUTF8(a.ResponseBody, "")) && !got.ResponseTruncated {
			t.Fatalf("cut without saying so")
		}
	})
}

func TestAnAttemptWhoseEveryTextIsLongIsBounded(t *testing.T) {
	for _, long := range []string{strings.Repeat("x", 400), strings.Repeat("\x00", 70), strings.Repeat("x", 9000), strings.Repeat("💌", 3000)} {
		a := schemas.Attempt{DeliveryID: long, MessageID: long, EndpointID: long, Tenant: long, EventID: long, Source: long, Type: long, Subject: long,
			Outcome: schemas.Outcome(long), Reason: schemas.Reason(long), Number: math.MinInt, Generation: math.MinInt, Run: long, ResendOf: long, Origin: long,
			Status: math.MinInt, ErrorClass: schemas.ErrorClass(long), Error: long, URL: long, Started: recordTime.Add(1), Duration: -1.2345678901234567e-300,
			Delay: -1.2345678901234567e-300, NotBefore: recordTime.Add(1), NextTry: recordTime.Add(1), Bytes: math.MinInt, ResponseBody: long,
			ResponseHeaders: []schemas.Pair{{Name: long, Value: long}}}
		b := schemas.AppendAttempt(nil, &a)
		if got := read(t, b); len(b) > schemas.MaxAttemptLen || !got.Started.Equal(a.Started) || got.Source == "" {
			t.Errorf("%d bytes", len(b))
		}
	}
}

func TestALongResponseLosesItsBodyBeforeItsHeaders(t *testing.T) {
	a := benchAttempt()
	for range 20 {
		a.ResponseHeaders = append(a.ResponseHeaders, schemas.Pair{Name: "x-h", Value: strings.Repeat("v", 200)})
	}
	a.ResponseBody = strings.Repeat("\x01", 2048)
	got := read(t, schemas.AppendAttempt(nil, &a))
	if len(got.ResponseHeaders) != 20 || !got.ResponseTruncated || got.ResponseBody == "" || !strings.HasPrefix(a.ResponseBody, got.ResponseBody) {
		t.Errorf("%d headers, %d of the body, truncated %v", len(got.ResponseHeaders), len(got.ResponseBody), got.ResponseTruncated)
	}
	a.ResponseHeaders[19].Value = strings.Repeat("v", 8000)
	got = read(t, schemas.AppendAttempt(nil, &a))
	if len(got.ResponseHeaders) != 19 || got.EventID != a.EventID || got.URL != a.URL || !got.ResponseTruncated {
		t.Errorf("%d headers, %+v", len(got.ResponseHeaders), got)
	}
}

func TestTimesAreUTCWithMillisecondsAndOddNumbersAreHarmless(t *testing.T) {
	a := schemas.Attempt{Started: time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("x", 3600)), NotBefore: time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC),
		NextTry: time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC), Duration: math.NaN(), Delay: math.Inf(-1)}
	got := string(schemas.AppendAttempt(nil, &a))
	for _, want := range []string{`"started":"2026-03-04T04:06:07.000Z"`, `"not_before":"2026-03-04T05:06:07.000000008Z"`,
		`"next_try":"0001-01-01T00:00:00.000Z"`, `"duration_ms":0,`, `"dispatch_delay_ms":0,`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
}

func TestWritingAnAttemptAllocatesNothing(t *testing.T) {
	a := benchAttempt()
	b := make([]byte, 0, schemas.MaxAttemptLen)
	if n := testing.AllocsPerRun(100, func() { b = schemas.AppendAttempt(b[:0], &a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func benchAttempt() schemas.Attempt {
	return schemas.Attempt{
		DeliveryID: "webhooks.deliveries-a1b2c3d4-7-123456.ep_2fKq0", MessageID: "msg_abcdefghijklmnopqrstuvwxyz", EndpointID: "ep_2fKq0",
		Tenant: "acme", EventID: "evt-0192837465", Source: "/shop/orders", Type: "order.created", Subject: "order/17", Outcome: schemas.OutcomeRetry,
		Number: 3, Origin: "webhooks.deliveries-a1b2c3d4-7-123456", Status: 503, Error: "503 Service Unavailable", URL: "https://example.com/hooks/milena",
		Started: recordTime, Duration: 12.345, Delay: 3.5, NotBefore: recordTime, NextTry: recordTime.Add(time.Minute), Bytes: 1024,
	}
}

func BenchmarkAppendAttempt(b *testing.B) {
	delivered := benchAttempt()
	delivered.Outcome, delivered.Error, delivered.Status = schemas.OutcomeDelivered, "", 200
	failed := benchAttempt()
	failed.ResponseBody = strings.Repeat(`{"error":"no"}`, 146)
	for range 10 {
		failed.ResponseHeaders = append(failed.ResponseHeaders, schemas.Pair{Name: "content-type", Value: "application/json"})
	}
	for name, a := range map[string]schemas.Attempt{"delivered": delivered, "failed": failed} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, schemas.MaxAttemptLen)
			for b.Loop() {
				buf = schemas.AppendAttempt(buf[:0], &a)
			}
		})
	}
}
