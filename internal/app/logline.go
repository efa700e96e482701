package app

import (
	"context"
	"log/slog"

	"github.com/milena-project/milena/schemas"
)

// logAttempt writes one wide line for an attempt, so that one query of a log
// store answers what happened: a dead letter is a warning, a failure is
// information, and a success is left out unless log.successes asks for it.
func (a *App) logAttempt(at *schemas.Attempt) {
	level := slog.LevelInfo
	switch at.Outcome {
	case schemas.OutcomeDelivered:
		if !a.cfg.Log.Successes {
			return
		}
	case schemas.OutcomeDead:
		level = slog.LevelWarn
	}
	ctx := context.Background() //nolint:forbidigo // a log line is not bound to the work's context
	if !a.log.Enabled(ctx, level) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 16),
		slog.String("outcome", string(at.Outcome)), slog.String("endpoint_id", at.EndpointID),
		slog.String("delivery_id", at.DeliveryID), slog.String("message_id", at.MessageID), slog.String("event_id", at.EventID),
		slog.String("type", at.Type), slog.Int("attempt", at.Number), slog.Int("generation", at.Generation),
		slog.Int("status", at.Status), slog.Float64("duration_ms", at.Duration), slog.Float64("dispatch_delay_ms", at.Delay))
	if at.ErrorClass != "" {
		attrs = append(attrs, slog.String("error_class", string(at.ErrorClass)), slog.String("err", at.Error))
	}
	if at.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(at.Reason)))
	}
	if !at.NextTry.IsZero() {
		attrs = append(attrs, slog.Time("next_try", at.NextTry))
	}
	a.log.LogAttrs(ctx, level, "attempt", attrs...)
}
