package tracing

import (
	"context"
	"errors"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/milena-project/milena/schemas"
)

var (
	_ kgo.HookProduceRecordBuffered   = (*Tracer)(nil)
	_ kgo.HookProduceRecordUnbuffered = (*Tracer)(nil)
)

// sending is a record's span, in the record's context. A writer that gets a record back
// and hands it in again finds the context as it was before.
type sending struct {
	span   trace.Span
	before context.Context
}

type sendingKey struct{}

// OnProduceRecordBuffered implements kgo.HookProduceRecordBuffered: it begins the span
// of writing a delivery and puts its context on the record. Records that are no
// deliveries (attempts, health, commits of runs) have none.
func (t *Tracer) OnProduceRecordBuffered(r *kgo.Record) {
	var p place
	delivery, at := false, -1
	for i := range r.Headers {
		switch h := &r.Headers[i]; h.Key {
		case schemas.HeaderOrigin:
			delivery = true
		case schemas.HeaderTraceparent:
			p.producer = string(h.Value)
		case schemas.HeaderTracestate:
			p.state = string(h.Value)
		case schemas.HeaderTrace:
			p.last, at = string(h.Value), i
		}
	}
	if !delivery {
		return
	}
	ctx, span := t.begin(p, "send "+r.Topic, trace.SpanKindProducer, []attribute.KeyValue{
		semconv.MessagingSystemKafka, semconv.MessagingOperationName("send"), semconv.MessagingOperationTypeSend,
		semconv.MessagingDestinationName(r.Topic), semconv.MessagingDestinationPartitionID(strconv.Itoa(int(r.Partition))),
		semconv.MessagingKafkaMessageKey(string(r.Key)),
	})
	if span == nil {
		return
	}
	header := kgo.RecordHeader{Key: schemas.HeaderTrace, Value: []byte(write(ctx).parent)}
	if at >= 0 {
		r.Headers[at] = header
	} else {
		r.Headers = append(r.Headers, header)
	}
	before := r.Context
	if before == nil {
		before = context.Background() //nolint:forbidigo // kgo's default too
	}
	r.Context = context.WithValue(before, sendingKey{}, sending{span, before})
}

// OnProduceRecordUnbuffered implements kgo.HookProduceRecordUnbuffered.
func (*Tracer) OnProduceRecordUnbuffered(r *kgo.Record, err error) {
	if r.Context == nil {
		return
	}
	s, ok := r.Context.Value(sendingKey{}).(sending)
	if !ok {
		return
	}
	span := s.span
	r.Context = s.before
	if err != nil {
		span.SetAttributes(semconv.ErrorTypeKey.String(errorType(err)))
		span.SetStatus(codes.Error, err.Error())
	} else {
		span.SetAttributes(semconv.MessagingKafkaOffset(int(r.Offset)))
	}
	span.End()
}

func errorType(err error) string {
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return "cancelled"
	}
	return "kafka"
}
