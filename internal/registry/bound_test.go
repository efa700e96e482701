package registry

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// What is drawn is what JSON can say, above all where it is absurd.
func TestWhateverARecordSaysStaysWithinTheBoundsOfRegistration(t *testing.T) {
	admin := &Admin{opts: AdminOptions{CheckURL: anyURL, MaxAge: schemas.DefaultMaxAge}}
	ints := rapid.OneOf(rapid.SampledFrom([]int{0, -1, 1, 1000, 1001, math.MinInt, math.MaxInt}), rapid.Int())
	durations := rapid.Map(ints, func(n int) schemas.Duration { return schemas.Duration(n) })
	rates := rapid.OneOf(rapid.SampledFrom([]float64{0, -1, 1e6, 1e300, -1e300, 1e-300}), rapid.Float64())
	rapid.Check(t, func(t *rapid.T) {
		ep := sample("e")
		ep.State = schemas.EndpointState(rapid.SampledFrom([]string{"enabled", "disabled", "", "paused"}).Draw(t, "state"))
		ep.Version = int64(ints.Draw(t, "version"))
		ep.MaxInFlight, ep.Timeout = ints.Draw(t, "in flight"), durations.Draw(t, "timeout")
		ep.RateLimit = rapid.Ptr(rapid.Custom(func(t *rapid.T) schemas.RateLimit {
			return schemas.RateLimit{Rate: rates.Draw(t, "rate"), Burst: ints.Draw(t, "burst")}
		}), true).Draw(t, "limit")
		ep.Retry.MaxAge = durations.Draw(t, "max age")
		ep.Retry.Preset = rapid.SampledFrom([]string{"", "fast", "nonsense"}).Draw(t, "preset")
		ep.Retry.Schedule = rapid.SliceOfN(durations, 0, 3).Draw(t, "schedule")

		wasRight := admin.validate(ptr(ep)) == nil && ep.Version > 0
		refused := Bound(&ep, schemas.DefaultMaxAge)
		if wasRight && len(refused) > 0 {
			t.Fatalf("what registration takes is refused: %v", refused)
		}
		if ep.State != schemas.StateEnabled && ep.State != schemas.StateDisabled || ep.Version < 1 {
			t.Fatalf("state %q, version %d", ep.State, ep.Version)
		}
		if ep.RateLimit != nil && ep.RateLimit.Rate == 0 {
			ep.RateLimit = nil // nothing is sent
		}
		for _, check := range []func(*Endpoint) error{checkMaxInFlight, checkTimeout, checkRateLimit} {
			if err := check(&ep); err != nil {
				t.Fatal(err)
			}
		}
		if err := checkMaxAge(&ep, schemas.DefaultMaxAge); err != nil {
			t.Fatal(err)
		}
	})
}

func ptr[T any](v T) *T { return &v }

func TestAHandWrittenRecordCountsAsFarAsItMayAndTheLogSaysSo(t *testing.T) {
	cfg := newConfig(t)
	logs := testkit.NewLogCapture(t)
	cfg.Logger = logs.Logger()
	cl := newClient(t, cfg)
	produce(t, cl, cfg.Names.Endpoints(), "e", []byte(`{"id":"e","url":"https://example.com/","event_types":["*"],"state":"enabled",
		"timeout":"100h","max_in_flight":2000000000,"rate_limit":{"rate":1e12,"burst":-4},"retry":{"max_age":"99999h"}}`))
	produce(t, cl, cfg.Names.Endpoints(), "off", []byte(`{"id":"off","url":"::::","event_types":["*"],"state":"paused","version":3}`))
	f := follow(t, cfg, nil, FollowerOptions{MaxAge: time.Hour})
	ep, ok := f.Endpoint("e")
	if !ok || time.Duration(ep.Timeout) != MaxTimeout || ep.MaxInFlight != maxInFlight || ep.RateLimit.Rate != maxRate || ep.RateLimit.Size() != maxRate ||
		time.Duration(ep.Retry.MaxAge) != time.Hour || ep.Version != 1 || ep.State != schemas.StateEnabled {
		t.Errorf("%+v %+v", ep, ep.RateLimit)
	}
	if f.LongestTimeout(time.Second) != MaxTimeout {
		t.Errorf("a stop is reckoned with %s", f.LongestTimeout(time.Second))
	}
	if off, ok := f.Endpoint("off"); !ok || off.State != schemas.StateDisabled {
		t.Errorf("%+v", off)
	}
	said, err := json.Marshal(logs.Find("an endpoint record says what registration refuses"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"timeout", "max_in_flight", "rate_limit.rate", "rate_limit.burst", "retry.max_age", "version", "1m0s counts", "state", "nothing is sent to it", "its attempts fail"} {
		if !strings.Contains(string(said), part) {
			t.Errorf("%s is not in the log: %s", part, said)
		}
	}
}
