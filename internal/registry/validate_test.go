package registry

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/retrytopics"
	"github.com/milena-project/milena/schemas"
)

func TestValidationNamesTheRefusedField(t *testing.T) {
	a := &Admin{opts: AdminOptions{CheckURL: anyURL}}
	header := func(name, value string) func(*Endpoint) {
		return func(ep *Endpoint) { ep.Headers = []schemas.Pair{{Name: name, Value: value}} }
	}
	cases := []struct {
		field string
		edit  func(*Endpoint)
	}{
		{"id", func(ep *Endpoint) { ep.ID = "a.b" }},
		{"id", func(ep *Endpoint) { ep.ID = strings.Repeat("a", 65) }},
		{"url", func(ep *Endpoint) { ep.URL = "gopher://x" }},
		{"url", func(ep *Endpoint) { ep.URL = "http://x/\r\ny" }},
		{"tenant", func(ep *Endpoint) { ep.Tenant = "a\x00b" }},
		{"description", func(ep *Endpoint) { ep.Description = strings.Repeat("x", 2000) }},
		{"event_types", func(ep *Endpoint) { ep.EventTypes = nil }},
		{"event_types[0]", func(ep *Endpoint) { ep.EventTypes = []string{""} }},
		{"event_types[0]", func(ep *Endpoint) { ep.EventTypes = []string{"order*"} }},
		{"event_types[0]", func(ep *Endpoint) { ep.EventTypes = []string{"*.created"} }},
		{"event_types[0]", func(ep *Endpoint) { ep.EventTypes = []string{".*"} }},
		{"event_types[0]", func(ep *Endpoint) { ep.EventTypes = []string{"a..b"} }},
		{"event_types[1]", func(ep *Endpoint) { ep.EventTypes = []string{"*", "a b"} }},
		{"signing", func(ep *Endpoint) { ep.Signing.Schemes = []schemas.Scheme{"md5"} }},
		{"max_in_flight", func(ep *Endpoint) { ep.MaxInFlight = -1 }},
		{"max_in_flight", func(ep *Endpoint) { ep.MaxInFlight = 1001 }},
		{"timeout", func(ep *Endpoint) { ep.Timeout = schemas.Duration(61 * time.Second) }},
		{"rate_limit.rate", func(ep *Endpoint) { ep.RateLimit = &schemas.RateLimit{} }},
		{"rate_limit.rate", func(ep *Endpoint) { ep.RateLimit = &schemas.RateLimit{Rate: math.NaN()} }},
		{"rate_limit.burst", func(ep *Endpoint) { ep.RateLimit = &schemas.RateLimit{Rate: 1, Burst: -1} }},
		{"retry.preset", func(ep *Endpoint) { ep.Retry.Preset = "never" }},
		{"retry.schedule[1]", func(ep *Endpoint) {
			ep.Retry.Schedule = []schemas.Duration{schemas.Duration(time.Minute), schemas.Duration(time.Second)}
		}},
		{"retry.schedule[0]", func(ep *Endpoint) { ep.Retry.Schedule = []schemas.Duration{schemas.Duration(100 * time.Hour)} }},
		{"retry.schedule[0]", func(ep *Endpoint) { ep.Retry.Schedule = []schemas.Duration{0} }},
		{"retry.final_statuses[0]", func(ep *Endpoint) { ep.Retry.FinalStatuses = []string{"2xx"} }},
		{"retry.final_statuses[1]", func(ep *Endpoint) { ep.Retry.FinalStatuses = []string{"4xx", "40x"} }},
		{"retry.max_age", func(ep *Endpoint) { ep.Retry.MaxAge = schemas.Duration(97 * time.Hour) }},
		{"headers[0].name", header("Host", "x")},
		{"headers[0].name", header("content-length", "1")},
		{"headers[0].name", header("Transfer-Encoding", "chunked")},
		{"headers[0].name", header("connection", "close")},
		{"headers[0].name", header("Keep-Alive", "1")},
		{"headers[0].name", header("upgrade", "h2c")},
		{"headers[0].name", header("TE", "trailers")},
		{"headers[0].name", header("trailer", "x")},
		{"headers[0].name", header("Expect", "100-continue")},
		{"headers[0].name", header("idempotency-key", "x")},
		{"headers[0].name", header("webhook-signature", "x")},
		{"headers[0].name", header("CE-id", "x")},
		{"headers[0].name", header("Milena-Attempt", "x")},
		{"headers[0].name", header("user-agent", "x")},
		{"headers[0].name", header("accept-encoding", "gzip")},
		{"headers[0].name", header("content-type", "text/plain")},
		{"headers[0].name", header("bad name", "x")},
		{"headers[0].name", header("x\r\ny", "x")},
		{"headers[0].name", header("", "x")},
		{"headers[0].value", header("x-a", "a\r\nb: c")},
		{"headers[0].value", header("x-a", "a\x00")},
		{"headers[0].name", func(ep *Endpoint) {
			ep.Signing.Schemes = []schemas.Scheme{schemas.SchemeStripe}
			header("stripe-signature", "x")(ep)
		}},
		{"headers[0].name", func(ep *Endpoint) { ep.Auth = &schemas.Auth{Bearer: "x"}; header("authorization", "x")(ep) }},
		{"forward_headers[0]", func(ep *Endpoint) { ep.ForwardHeaders = []string{"host"} }},
		{"auth", func(ep *Endpoint) { ep.Auth = &schemas.Auth{} }},
		{"auth.basic.user", func(ep *Endpoint) { ep.Auth = &schemas.Auth{Basic: &schemas.BasicAuth{User: "a:b"}} }},
		{"auth.bearer", func(ep *Endpoint) { ep.Auth = &schemas.Auth{Bearer: "geheim\n"} }},
		{"metadata[0].name", func(ep *Endpoint) { ep.Metadata = []schemas.Pair{{Value: "x"}} }},
	}
	for _, c := range cases {
		ep := sample("e")
		ep.State = schemas.StateEnabled
		c.edit(&ep)
		var invalid *ValidationError
		err := a.validate(&ep)
		if !errors.As(err, &invalid) || invalid.Field != c.field {
			t.Errorf("want a refusal of %s, got %v", c.field, err)
			continue
		}
		if invalid.Remedy == "" || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", c.field, err)
		}
	}
	ep := sample("ok_-1")
	ep.State = schemas.StateEnabled
	ep.EventTypes = []string{"*", "order.*", "order.created", "order.*", "com.example/thing-v2"}
	ep.Headers = []schemas.Pair{{Name: "X-Customer", Value: "ü 1"}}
	ep.Retry = schemas.Retry{Preset: "fast", Schedule: []schemas.Duration{schemas.Duration(time.Second), schemas.Duration(time.Second)}, FinalStatuses: []string{"404", "5xx"}}
	if err := a.validate(&ep); err != nil || len(ep.EventTypes) != 4 {
		t.Fatalf("%v, %v", err, ep.EventTypes)
	}
}

func TestTheLongestMaxAgeIsTheInstallations(t *testing.T) {
	a := &Admin{opts: AdminOptions{CheckURL: anyURL, MaxAge: 200 * time.Hour}}
	ep := Endpoint{Retry: schemas.Retry{MaxAge: schemas.Duration(150 * time.Hour)}}
	if err := a.checkRetry(&ep); err != nil {
		t.Errorf("150h of 200h: %v", err)
	}
	ep.Retry.MaxAge = schemas.Duration(201 * time.Hour)
	if err := a.checkRetry(&ep); err == nil || !strings.Contains(err.Error(), "200h") {
		t.Errorf("201h of 200h: %v", err)
	}
}

// What registration lets pass and the policy does not would be sent by another policy.
func TestWhatThePolicyRefusesIsNotRegistered(t *testing.T) {
	a := &Admin{opts: AdminOptions{CheckURL: anyURL, MaxAge: retrytopics.LongestMaxAge}}
	for name, r := range map[string]schemas.Retry{
		"a max age of half a second": {MaxAge: schemas.Duration(500 * time.Millisecond), Schedule: []schemas.Duration{1}},
		"a delay of eight days":      {Schedule: []schemas.Duration{schemas.Duration(8 * 24 * time.Hour)}},
	} {
		if _, err := retrytopics.Compile(r); err == nil {
			t.Fatalf("%s: the policy takes it", name)
		}
		if err := a.checkRetry(&Endpoint{Retry: r}); err == nil {
			t.Errorf("%s is registered", name)
		}
	}
}
