// Package tracing tells an OpenTelemetry collector what happens to deliveries: a span
// for each POST and one for each writing of a delivery to a topic. It is set up from
// the standard OTEL_* variables by whoever starts a process, and wired by internal/app;
// without them there is no Tracer, and nothing is allocated for one.
//
// A delivery may wait for days, so its spans are no tree that stays open: each is a
// child of the producer's context (its own trace where the producer gave none) and has
// a link to the span before it. The context of that one travels with the record as
// milena-trace, through hold, park, release, death and replay; the producer's own
// traceparent stays what it was.
//
// kotel, the client's own plugin, is not used: it would overwrite the producer's
// traceparent at every hop, make spans of bookkeeping records, and has the attribute
// names of the conventions of 2023.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes the spans of one process. Safe for concurrent use.
type Tracer struct {
	providers [2]*sdktrace.TracerProvider
	first     trace.Tracer // decides by OTEL_TRACES_SAMPLER
	later     trace.Tracer // for what follows a span that was sampled: it is, too
}

// FromEnvironment returns the Tracer that the OTEL_* variables ask for: nil without
// OTEL_TRACES_EXPORTER or an OTLP endpoint, with the exporter none, or with
// OTEL_SDK_DISABLED. The exporter is otlp, by http/protobuf (default) or grpc; another
// one is an error. Version and process name the service's version and instance.
// A collector that does not answer costs spans and nothing else; log hears of it.
func FromEnvironment(ctx context.Context, version, process string, log *slog.Logger) (*Tracer, error) {
	wanted, err := wanted()
	if !wanted || err != nil {
		return nil, err
	}
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("milena"), semconv.ServiceVersion(version), semconv.ServiceInstanceID(process)),
		resource.WithFromEnv(), // the last word
	)
	if err != nil && !errors.Is(err, resource.ErrSchemaURLConflict) {
		return nil, fmt.Errorf("traces: %w", err)
	}
	quiet(log)
	return newTracer(sdktrace.NewBatchSpanProcessor(exporter), sdktrace.WithResource(res)), nil
}

func wanted() (bool, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	switch exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "otlp":
		return true, nil
	case "none":
		return false, nil
	case "":
		return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "", nil
	default:
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER = %q: want otlp or none", exporter)
	}
}

func newExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	protocol := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	switch protocol {
	case "", "http/protobuf":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	}
	return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL = %q: want http/protobuf or grpc", protocol)
}

var quietOnce sync.Once

// quiet sends what the SDK complains of to our log: it has one handler for the whole
// program, and its default writes to stderr past every format.
func quiet(log *slog.Logger) {
	quietOnce.Do(func() {
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces are not exported", "err", err) }))
	})
}

func newTracer(processor sdktrace.SpanProcessor, opts ...sdktrace.TracerProviderOption) *Tracer {
	opts = append(opts, sdktrace.WithSpanProcessor(processor))
	t := &Tracer{providers: [2]*sdktrace.TracerProvider{
		sdktrace.NewTracerProvider(opts...),
		sdktrace.NewTracerProvider(append(opts, sdktrace.WithSampler(sdktrace.AlwaysSample()))...),
	}}
	const scope = "github.com/milena-project/milena"
	schema := trace.WithSchemaURL(semconv.SchemaURL)
	t.first, t.later = t.providers[0].Tracer(scope, schema), t.providers[1].Tracer(scope, schema)
	return t
}

// Close exports what is left, until ctx ends. Nothing is traced after it.
func (t *Tracer) Close(ctx context.Context) error {
	return errors.Join(t.providers[0].Shutdown(ctx), t.providers[1].Shutdown(ctx))
}
