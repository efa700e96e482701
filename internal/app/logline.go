package app

import (
	"context"
	"hash/fnv"
	"log/slog"
	"math"

	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/logging"
	"github.com/milena-project/milena/schemas"
)

// logAttempt writes one wide line for an attempt, so that one query of a log store
// answers what happened: a dead letter is a warning, a failure is information, and of
// the successes there is the sample that log.successes asks for.
func (a *App) logAttempt(at *schemas.Attempt) {
	level := slog.LevelInfo
	switch at.Outcome {
	case schemas.OutcomeDelivered:
		if !sampled(at.DeliveryID, math.Float64frombits(a.successes.Load())) {
			return
		}
	case schemas.OutcomeDead:
		level = slog.LevelWarn
	}
	ctx := context.Background() //nolint:forbidigo // a log line is not bound to the work's context
	if !a.log.Enabled(ctx, level) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 24),
		slog.String("outcome", string(at.Outcome)), slog.String("endpoint_id", at.EndpointID),
		slog.String("delivery_id", at.DeliveryID), slog.String("message_id", at.MessageID), slog.String("event_id", at.EventID),
		slog.String("source", logging.WithoutQuery(at.Source)), slog.String("type", at.Type), slog.Int("attempt", at.Number), slog.Int("generation", at.Generation),
		slog.Int("status", at.Status), slog.Float64("duration_ms", at.Duration), slog.Float64("dispatch_delay_ms", at.Delay),
		slog.Int("bytes", at.Bytes))
	attrs = given(attrs, slog.String("tenant", at.Tenant), slog.String("url", at.URL), slog.String("error_class", string(at.ErrorClass)),
		slog.String("err", at.Error), slog.String("reason", string(at.Reason)), slog.String("run", at.Run))
	if !at.NextTry.IsZero() {
		attrs = append(attrs, slog.Time("next_try", at.NextTry))
	}
	a.log.LogAttrs(ctx, level, "attempt", attrs...) // logging.Attempt
}

// given appends those that are not empty.
func given(attrs []slog.Attr, texts ...slog.Attr) []slog.Attr {
	for _, t := range texts {
		if t.Value.String() != "" {
			attrs = append(attrs, t)
		}
	}
	return attrs
}

// sampled reports whether a delivery is in the sample: all of its attempts are, or
// none, in whichever process they are made.
func sampled(deliveryID string, share float64) bool {
	switch {
	case share <= 0:
		return false
	case share >= 1:
		return true
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(deliveryID))
	mixed := h.Sum64() * 0x9e3779b97f4a7c15 // ids that differ at their end only differ in few of the upper bits
	return float64(mixed^mixed>>32)/math.MaxUint64 < share
}

// Reconfigure takes over what may change while the process runs: the share of
// successes that are logged, and the key ring. Everything else of a configuration
// counts from the next start.
func (a *App) Reconfigure(cfg *config.Config) error {
	if err := a.follower.SetKeyRing(cfg.Keyring); err != nil {
		return err
	}
	a.successes.Store(math.Float64bits(float64(cfg.Log.Successes)))
	return nil
}
