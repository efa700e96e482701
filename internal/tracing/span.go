package tracing

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/milena-project/milena/dispatcher"
	"github.com/milena-project/milena/internal/logging"
	"github.com/milena-project/milena/schemas"
)

// place is where a span belongs, as the headers of a record say it.
type place struct {
	producer, state string // the producer's W3C context
	last            string // milena-trace: of the span before
}

// begin starts a span. It is nil where the delivery is not to be traced: the span
// before this one was not sampled, and the producer says nothing of it.
func (t *Tracer) begin(p place, name string, kind trace.SpanKind, attributes []attribute.KeyValue) (context.Context, trace.Span) {
	ctx := context.Background() //nolint:forbidigo // the parent comes with the record and not from a caller
	producer, last := read(p.producer, p.state), read(p.last, "")
	opts := []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(attributes...)}
	if last.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: last}))
	}
	tracer := t.first
	switch {
	case producer.IsValid():
		ctx = trace.ContextWithRemoteSpanContext(ctx, producer)
	case last.IsSampled():
		tracer = t.later
	case last.IsValid():
		return ctx, nil
	}
	return tracer.Start(ctx, name, opts...)
}

// carrier is a W3C context in two strings.
type carrier struct{ parent, state string }

func (c *carrier) Get(key string) string {
	switch key {
	case "traceparent":
		return c.parent
	case "tracestate":
		return c.state
	}
	return ""
}

func (c *carrier) Set(key, value string) {
	switch key {
	case "traceparent":
		c.parent = value
	case "tracestate":
		c.state = value
	}
}

func (*carrier) Keys() []string { return []string{"traceparent", "tracestate"} }

func read(parent, state string) trace.SpanContext {
	if parent == "" {
		return trace.SpanContext{}
	}
	ctx := context.Background() //nolint:forbidigo // it holds what is read, and nothing else
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, &carrier{parent, state}))
}

func write(ctx context.Context) (c carrier) {
	propagation.TraceContext{}.Inject(ctx, &c)
	return c
}

// Attempting begins the span of a POST; it is dispatcher.Hooks.Attempting.
func (t *Tracer) Attempting(d *schemas.Delivery, ep *dispatcher.Endpoint) *dispatcher.Span {
	ctx, span := t.begin(place{d.Traceparent, d.Tracestate, d.Trace}, "POST", trace.SpanKindClient, attemptAttributes(d, ep))
	if span == nil {
		return nil
	}
	c := write(ctx)
	d.Trace = c.parent
	return &dispatcher.Span{Traceparent: c.parent, Tracestate: c.state,
		End: func(status int, class schemas.ErrorClass, interrupted bool) { end(span, status, class, interrupted) }}
}

func attemptAttributes(d *schemas.Delivery, ep *dispatcher.Endpoint) []attribute.KeyValue {
	all := []attribute.KeyValue{
		semconv.HTTPRequestMethodPost, semconv.URLFull(ep.LogURL), semconv.ServerAddress(ep.URL.Hostname()), semconv.ServerPort(port(ep)),
		semconv.CloudEventsEventID(d.Event.ID), semconv.CloudEventsEventSource(logging.WithoutQuery(d.Event.Source)), semconv.CloudEventsEventType(d.Event.Type),
		attribute.String("milena.endpoint_id", d.EndpointID), attribute.String("milena.delivery_id", d.ID()),
		attribute.String("milena.message_id", d.MessageID()), attribute.Int("milena.attempt", d.Attempt+1),
	}
	if d.Attempt > 0 {
		all = append(all, semconv.HTTPRequestResendCount(d.Attempt))
	}
	if d.Event.Subject != "" {
		all = append(all, semconv.CloudEventsEventSubject(d.Event.Subject))
	}
	if d.Generation > 0 {
		all = append(all, attribute.Int("milena.generation", d.Generation))
	}
	if d.Run != "" {
		all = append(all, attribute.String("milena.run", d.Run))
	}
	return all
}

func port(ep *dispatcher.Endpoint) int {
	if n, err := strconv.Atoi(ep.URL.Port()); err == nil {
		return n
	}
	if ep.URL.Scheme == "http" {
		return 80
	}
	return 443
}

func end(span trace.Span, status int, class schemas.ErrorClass, interrupted bool) {
	if status > 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(status))
	}
	switch {
	case interrupted: // for our own sake: no fault of the endpoint, and no outcome
		span.SetAttributes(attribute.Bool("milena.interrupted", true), semconv.ErrorTypeKey.String(string(class)))
	case class != "":
		span.SetAttributes(semconv.ErrorTypeKey.String(string(class)))
		span.SetStatus(codes.Error, "")
	case status < 200 || status > 299:
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(status)))
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
