package app

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/milena-project/milena/internal/logging"
	"github.com/milena-project/milena/schemas"
)

func TestEachAttemptHasOneWideLineWithoutAQuery(t *testing.T) {
	var out bytes.Buffer
	a := &App{log: slog.New(logging.Quiet(slog.NewJSONHandler(&out, nil)))}
	a.successes.Store(math.Float64bits(1))
	at := schemas.Attempt{
		DeliveryID: "d", EndpointID: "shop", Source: "https://u:p@src.example/a?token=SECRET#f", URL: "https://shop.example/hooks", Status: 500,
		Outcome: schemas.OutcomeDead, Reason: schemas.ReasonExhausted, ResponseBody: "BODY", ResponseHeaders: []schemas.Pair{{Name: "Location", Value: "/?t=SECRET"}},
	}
	for range 3 { // the same thing three times is three facts
		a.logAttempt(&at)
	}
	if n := strings.Count(out.String(), `"msg":"attempt"`); n != 3 {
		t.Errorf("%d lines, want 3", n)
	}
	for _, secret := range []string{"SECRET", "BODY", "u:p", "?"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%s is in %s", secret, out.String())
		}
	}
	if !strings.Contains(out.String(), `"source":"https://src.example/a"`) || !strings.Contains(out.String(), `"level":"WARN"`) {
		t.Error(out.String())
	}
}

func TestSuccessesAreSampledByDelivery(t *testing.T) {
	const n = 20_000
	for _, share := range []float64{0, 0.1, 0.5, 1} {
		in := 0
		for i := range n {
			if sampled(fmt.Sprintf("webhooks.deliveries-00000000-0-%d.shop", i), share) {
				in++
			}
		}
		if got := float64(in) / n; math.Abs(got-share) > 0.03 {
			t.Errorf("%.3f of the deliveries, want %.1f", got, share)
		}
	}
}
