package schemas_test

import (
	"math"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

// Generators of what may stand in a delivery after parsing.

func genText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringN(1, 40, 120), rapid.StringMatching(`[a-z]{1,12}([./-][a-z0-9]{1,9}){0,3}`),
		rapid.Just("ünïcødé 💌"), rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 20), func(b []byte) string { return string(b) }))
}

func genMaybe(g *rapid.Generator[string]) *rapid.Generator[string] {
	return rapid.OneOf(rapid.Just(""), g)
}

func genTime() *rapid.Generator[time.Time] {
	return rapid.OneOf(rapid.Just(time.Time{}), rapid.Map(rapid.Int64Range(1, 253402300799999),
		func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }))
}

func genOrigin() *rapid.Generator[schemas.Origin] {
	return rapid.Custom(func(t *rapid.T) schemas.Origin {
		o := schemas.Origin{
			Topic:     rapid.StringMatching(`[a-zA-Z0-9._-]{1,60}`).Draw(t, "topic"),
			Partition: rapid.Int32Range(0, math.MaxInt32).Draw(t, "partition"),
			Offset:    rapid.Int64Range(0, math.MaxInt64).Draw(t, "offset"),
		}
		copy(o.TopicID[:], rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "topic id"))
		return o
	})
}

func genEndpointID() *rapid.Generator[string] { return rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`) }

func genExtra() *rapid.Generator[[]schemas.Header] {
	return rapid.Custom(func(t *rapid.T) []schemas.Header {
		var hs []schemas.Header
		for range rapid.IntRange(0, 4).Draw(t, "extras") {
			key := rapid.OneOf(rapid.StringMatching(`x-[a-z]{1,8}`), rapid.Just("ce_dataschema"), rapid.Just(""),
				rapid.Just("CE_ID"), genText()).Draw(t, "key")
			if lower := strings.ToLower(key); strings.HasPrefix(lower, "milena-") || lower == "content-type" ||
				strings.HasPrefix(lower, "trace") || strings.HasPrefix(key, "ce_") && key != "ce_dataschema" {
				continue
			}
			hs = append(hs, schemas.Header{Key: key, Value: rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "value")})
		}
		return hs
	})
}

func genDelivery() *rapid.Generator[schemas.Delivery] {
	return rapid.Custom(func(t *rapid.T) schemas.Delivery {
		d := schemas.Delivery{
			EndpointID: genEndpointID().Draw(t, "endpoint"),
			Event: schemas.Event{
				ID: genText().Draw(t, "id"), Source: genText().Draw(t, "source"), Type: genText().Draw(t, "type"),
				Time: genMaybe(genText()).Draw(t, "time"), Subject: genMaybe(genText()).Draw(t, "subject"),
				Tenant: genMaybe(genText()).Draw(t, "tenant"), SpecVersion: genText().Draw(t, "specversion"),
				ContentType: rapid.SampledFrom([]string{"", "application/json", "text/plain; charset=utf-8",
					schemas.ContentTypeStructured, "Application/CloudEvents+JSON; charset=utf-8"}).Draw(t, "content type"),
			},
			Payload:      rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "payload"),
			Origin:       genOrigin().Draw(t, "origin"),
			Attempt:      rapid.IntRange(0, math.MaxInt32).Draw(t, "attempt"),
			Generation:   rapid.IntRange(0, math.MaxInt32).Draw(t, "generation"),
			Enqueued:     time.UnixMilli(rapid.Int64Range(1, 253402300799999).Draw(t, "enqueued")).UTC(),
			FirstAttempt: genTime().Draw(t, "first attempt"),
			NotBefore:    genTime().Draw(t, "not before"),
			HopUntil:     genTime().Draw(t, "hop until"),
			Released:     genTime().Draw(t, "released"),
			Forwards:     rapid.IntRange(0, 9).Draw(t, "forwards"),
			Claim:        rapid.Int64Range(0, math.MaxInt64).Draw(t, "claim"),
			LastStatus:   rapid.IntRange(0, 999).Draw(t, "status"),
			ErrorClass:   schemas.ErrorClass(rapid.SampledFrom([]string{"", "tls", "of-a-newer-version"}).Draw(t, "class")),
			Error:        schemas.CleanError(genMaybe(rapid.String()).Draw(t, "error")),
			Run:          genMaybe(rapid.StringMatching(`[a-z0-9-]{1,40}`)).Draw(t, "run"),
			Traceparent:  genMaybe(genText()).Draw(t, "traceparent"),
			Trace:        genMaybe(rapid.StringMatching(`00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]`)).Draw(t, "trace"),
			Tracestate:   genMaybe(genText()).Draw(t, "tracestate"),
			Extra:        genExtra().Draw(t, "extra"),
		}
		if rapid.Bool().Draw(t, "resend") {
			d.ResendOf = genOrigin().Draw(t, "resent").String() + "." + genEndpointID().Draw(t, "resent to")
		}
		d.Event.Structured = strings.Contains(strings.ToLower(d.Event.ContentType), "cloudevents")
		if d.Event.Structured {
			d.Payload = []byte(`{"specversion":"1.0"}`) // one that is no JSON object would be malformed
		}
		return d
	})
}
