package tracing

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/milena-project/milena/dispatcher"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestMain(m *testing.M) { testkit.VerifyMain(m) }

const (
	producerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	sampled       = "00-" + producerTrace + "-00f067aa0ba902b7-01"
	unsampled     = "00-" + producerTrace + "-00f067aa0ba902b7-00"
)

func traced(t *testing.T, opts ...sdktrace.TracerProviderOption) (*Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	rec := tracetest.NewSpanRecorder()
	tr := newTracer(rec, opts...)
	t.Cleanup(func() { _ = tr.Close(context.Background()) })
	return tr, rec
}

func endpoint(t *testing.T) *dispatcher.Endpoint {
	t.Helper()
	u, err := url.Parse("https://shop.test/hooks?token=secret")
	if err != nil {
		t.Fatal(err)
	}
	return &dispatcher.Endpoint{ID: "shop", URL: u, LogURL: "https://shop.test/hooks"}
}

func delivery() *schemas.Delivery {
	return &schemas.Delivery{EndpointID: "shop", Event: schemas.Event{ID: "4711", Source: "/orders?token=secret", Type: "order.created"},
		Origin: schemas.Origin{Topic: "webhooks.deliveries", Offset: 5}, Traceparent: sampled, Tracestate: "vendor=1"}
}

// step writes a delivery to a topic as the writer does, and returns what is read there.
func step(t *testing.T, tr *Tracer, d *schemas.Delivery, topic string, failure error) *schemas.Delivery {
	t.Helper()
	rec := &kgo.Record{Topic: topic, Key: []byte(d.EndpointID), Value: []byte("{}")}
	for _, h := range d.Headers() {
		rec.Headers = append(rec.Headers, kgo.RecordHeader(h))
	}
	tr.OnProduceRecordBuffered(rec)
	rec.Offset = 7
	tr.OnProduceRecordUnbuffered(rec, failure)
	in := schemas.Record{Topic: topic, Offset: 7, Key: rec.Key, Value: rec.Value}
	for _, h := range rec.Headers {
		in.Headers = append(in.Headers, schemas.Header(h))
	}
	read, err := schemas.ParseDelivery(in)
	if err != nil {
		t.Fatal(err)
	}
	return &read
}

func attributesOf(s sdktrace.ReadOnlySpan) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

func TestEveryStepIsASpanOfTheProducersTraceWithALinkToTheOneBefore(t *testing.T) {
	tr, rec := traced(t)
	d, ep := delivery(), endpoint(t)

	first := tr.Attempting(d, ep)
	if !strings.HasPrefix(first.Traceparent, "00-"+producerTrace) || first.Traceparent == sampled || first.Tracestate != "vendor=1" {
		t.Errorf("the request carries %q, %q", first.Traceparent, first.Tracestate)
	}
	first.End(503, "", false)
	d.Attempt++
	d = step(t, tr, d, "webhooks.retry.1m", nil)
	d = step(t, tr, d, "webhooks.deliveries", nil)
	second := tr.Attempting(d, ep)
	second.End(0, schemas.ClassTimeout, false)
	d = step(t, tr, d, "webhooks.dlq", nil)
	if d.Traceparent != sampled || d.Tracestate != "vendor=1" {
		t.Errorf("the producer's context became %q, %q", d.Traceparent, d.Tracestate)
	}

	spans := rec.Ended()
	var names []string
	for i, s := range spans {
		names = append(names, s.Name())
		if s.SpanContext().TraceID().String() != producerTrace || s.Parent().SpanID().String() != "00f067aa0ba902b7" {
			t.Errorf("%s is in trace %s below %s", s.Name(), s.SpanContext().TraceID(), s.Parent().SpanID())
		}
		if i == 0 && len(s.Links()) != 0 || i > 0 && (len(s.Links()) != 1 || s.Links()[0].SpanContext.SpanID() != spans[i-1].SpanContext().SpanID()) {
			t.Errorf("%s has links %v", s.Name(), s.Links())
		}
	}
	if want := []string{"POST", "send webhooks.retry.1m", "send webhooks.deliveries", "POST", "send webhooks.dlq"}; !slices.Equal(names, want) {
		t.Errorf("spans %v", names)
	}
	post := attributesOf(spans[0])
	for name, want := range map[string]string{
		"http.request.method": "POST", "url.full": "https://shop.test/hooks", "server.address": "shop.test", "server.port": "443",
		"http.response.status_code": "503", "error.type": "503", "cloudevents.event_id": "4711", "cloudevents.event_source": "/orders", "milena.endpoint_id": "shop", "milena.attempt": "1",
	} {
		if post[name] != want {
			t.Errorf("%s = %q, want %q", name, post[name], want)
		}
	}
	again := attributesOf(spans[3])
	if again["error.type"] != "timeout" || again["http.request.resend_count"] != "1" || spans[3].Status().Code != codes.Error || spans[3].SpanKind() != trace.SpanKindClient {
		t.Errorf("second attempt %v", again)
	}
	send := attributesOf(spans[1])
	for name, want := range map[string]string{
		"messaging.system": "kafka", "messaging.operation.type": "send", "messaging.destination.name": "webhooks.retry.1m",
		"messaging.destination.partition.id": "0", "messaging.kafka.offset": "7", "messaging.kafka.message.key": "shop",
	} {
		if send[name] != want {
			t.Errorf("%s = %q, want %q", name, send[name], want)
		}
	}
}

func TestWithoutAProducersContextEachStepIsATraceOfItsOwnAndTheLinksRemain(t *testing.T) {
	tr, rec := traced(t, sdktrace.WithSampler(sdktrace.TraceIDRatioBased(1)))
	d, ep := delivery(), endpoint(t)
	d.Traceparent, d.Tracestate = "", ""
	tr.Attempting(d, ep).End(500, "", false)
	d = step(t, tr, d, "webhooks.retry.24h", nil)
	tr.Attempting(d, ep).End(200, "", false)
	spans := rec.Ended()
	if len(spans) != 3 {
		t.Fatalf("%d spans", len(spans))
	}
	for i := 1; i < len(spans); i++ {
		if spans[i].SpanContext().TraceID() == spans[i-1].SpanContext().TraceID() || spans[i].Parent().IsValid() ||
			len(spans[i].Links()) != 1 || spans[i].Links()[0].SpanContext.SpanID() != spans[i-1].SpanContext().SpanID() {
			t.Errorf("%s: trace %s, links %v", spans[i].Name(), spans[i].SpanContext().TraceID(), spans[i].Links())
		}
	}
	if spans[2].Status().Code == codes.Error {
		t.Errorf("a delivered attempt ended with %v", spans[2].Status())
	}
}

// What was left out at its beginning is left out to its end, and the receiver learns it.
func TestAChoiceOfTheSamplerHoldsForTheWholeDelivery(t *testing.T) {
	tr, rec := traced(t, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	d, ep := delivery(), endpoint(t)
	d.Traceparent = unsampled
	span := tr.Attempting(d, ep)
	if !strings.HasPrefix(span.Traceparent, "00-"+producerTrace) || !strings.HasSuffix(span.Traceparent, "-00") {
		t.Errorf("the request carries %q", span.Traceparent)
	}
	span.End(500, "", false)
	d.Traceparent, d.Tracestate = "", ""
	d = step(t, tr, d, "webhooks.hold", nil)
	if span := tr.Attempting(d, ep); span != nil {
		t.Errorf("a span follows one that was left out: %+v", span)
	}
	if n := len(rec.Ended()); n != 0 {
		t.Errorf("%d spans", n)
	}
}

func TestARecordThatIsNoDeliveryHasNoSpanAndOneThatIsGivenBackNoneTwice(t *testing.T) {
	tr, rec := traced(t)
	attempt := &kgo.Record{Topic: "webhooks.attempts", Key: []byte("shop"), Value: []byte("{}")}
	tr.OnProduceRecordBuffered(attempt)
	tr.OnProduceRecordUnbuffered(attempt, nil)
	if len(attempt.Headers) != 0 || len(rec.Ended()) != 0 {
		t.Errorf("headers %v, %d spans", attempt.Headers, len(rec.Ended()))
	}
	again := &kgo.Record{Topic: "webhooks.dlq"}
	for _, h := range delivery().Headers() {
		again.Headers = append(again.Headers, kgo.RecordHeader(h))
	}
	n := len(again.Headers)
	for range 3 {
		tr.OnProduceRecordBuffered(again)
		tr.OnProduceRecordUnbuffered(again, errors.New("not enough replicas"))
	}
	if len(again.Headers) != n+1 || again.Context.Value(sendingKey{}) != nil {
		t.Errorf("%d headers, context %v", len(again.Headers), again.Context)
	}
	for _, s := range rec.Ended() {
		if s.Status().Code != codes.Error || !slices.Contains(s.Attributes(), attribute.String("error.type", "kafka")) {
			t.Errorf("%v %v", s.Status(), s.Attributes())
		}
	}
}

func TestOnlyTheEnvironmentTurnsTracesOn(t *testing.T) {
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for env, want := range map[string]struct{ on, refused bool }{
		"":                          {},
		"OTEL_SERVICE_NAME=hooks":   {},
		"OTEL_TRACES_EXPORTER=none": {},
		"OTEL_TRACES_EXPORTER=none OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1": {},
		"OTEL_SDK_DISABLED=true OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1":    {},
		"OTEL_TRACES_EXPORTER=otlp":                                       {on: true},
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1":                  {on: true},
		"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=grpc":      {on: true},
		"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=http/json": {refused: true},
		"OTEL_TRACES_EXPORTER=zipkin":                                     {refused: true},
	} {
		t.Run(env, func(t *testing.T) {
			for _, e := range strings.Fields(env) {
				name, value, _ := strings.Cut(e, "=")
				t.Setenv(name, value)
			}
			tr, err := FromEnvironment(t.Context(), "1", "host/1", slog.New(slog.DiscardHandler))
			if (err != nil) != want.refused || (tr != nil) != want.on {
				t.Errorf("%v, %v", tr, err)
			}
			if tr != nil {
				if err := tr.Close(t.Context()); err != nil { // nothing is left, so nobody is asked
					t.Error(err)
				}
			}
		})
	}
}
