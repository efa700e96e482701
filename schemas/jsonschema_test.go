package schemas_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

const schemaBase = "https://github.com/milena-project/milena/schemas/json/"

// compileSchemas reads json/, made strict: a field that no schema mentions is an
// error here, though readers must bear with it.
func compileSchemas(t testing.TB) func(name string) *jsonschema.Schema {
	t.Helper()
	files, err := filepath.Glob("json/*.schema.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	for _, file := range files {
		doc := readSchema(t, file)
		if !strings.Contains(file, "headers") {
			forbidUnknown(doc)
		}
		if err := c.AddResource(schemaBase+filepath.Base(file), doc); err != nil {
			t.Fatal(err)
		}
	}
	return func(name string) *jsonschema.Schema {
		sch, err := c.Compile(schemaBase + name + ".schema.json")
		if err != nil {
			t.Fatal(err)
		}
		return sch
	}
}

func readSchema(t testing.TB, file string) any {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(file, err)
	}
	return doc
}

func forbidUnknown(node any) {
	switch n := node.(type) {
	case map[string]any:
		_, isObject := n["properties"].(map[string]any)
		if isObject && n["type"] == "object" {
			n["additionalProperties"] = false
		}
		for _, v := range n {
			forbidUnknown(v)
		}
	case []any:
		for _, v := range n {
			forbidUnknown(v)
		}
	}
}

func validate(t interface {
	Helper()
	Fatalf(string, ...any)
}, sch *jsonschema.Schema, b []byte) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	if err := sch.Validate(v); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// headersJSON writes headers as an object; of equal ones the first counts.
func headersJSON(t testing.TB, hs []schemas.Header) []byte {
	m := map[string]string{}
	for _, h := range hs {
		if _, ok := m[h.Key]; !ok {
			m[h.Key] = string(h.Value)
		}
	}
	return marshal(t, m)
}

func TestAttemptRecordsFollowTheirSchema(t *testing.T) {
	sch := compileSchemas(t)("attempt")
	full := benchAttempt()
	full.Reason, full.Generation, full.Run, full.ResendOf, full.ErrorClass = schemas.ReasonGone, 1, "run-1", full.DeliveryID, schemas.ClassTLS
	full.ResponseHeaders, full.ResponseBody, full.ResponseTruncated = []schemas.Pair{{Name: "n", Value: "v"}}, "no", true
	validate(t, sch, schemas.AppendAttempt(nil, &full))
	validate(t, sch, marshal(t, full))
	rapid.Check(t, func(t *rapid.T) {
		d := genDelivery().Draw(t, "delivery")
		a := schemas.Attempt{
			DeliveryID: d.ID(), MessageID: d.MessageID(), EndpointID: d.EndpointID, EventID: d.Event.ID, Source: d.Event.Source, Type: d.Event.Type,
			Tenant: d.Event.Tenant, Subject: d.Event.Subject, Outcome: schemas.OutcomeDelivered, Number: d.Attempt, Generation: d.Generation,
			Run: d.Run, ResendOf: d.ResendOf, Origin: d.Origin.String(), Status: d.LastStatus, Error: d.Error, Started: d.Enqueued,
			NotBefore: d.NotBefore, NextTry: d.HopUntil, Bytes: len(d.Payload),
		}
		validate(t, sch, schemas.AppendAttempt(nil, &a))
	})
}

func TestSchemasNameEveryValueOfAClosedSet(t *testing.T) {
	sch := compileSchemas(t)("attempt")
	outcomes := []schemas.Outcome{schemas.OutcomeDelivered, schemas.OutcomeRetry, schemas.OutcomeDead, schemas.OutcomeInterrupted, schemas.OutcomeDuplicate}
	for i := range max(len(schemas.Reasons), len(schemas.ErrorClasses), len(outcomes)) {
		a := benchAttempt()
		a.Reason = schemas.Reasons[i%len(schemas.Reasons)]
		a.ErrorClass = schemas.ErrorClasses[i%len(schemas.ErrorClasses)]
		a.Outcome = outcomes[i%len(outcomes)]
		validate(t, sch, schemas.AppendAttempt(nil, &a))
	}
	properties := readSchema(t, "json/attempt.schema.json").(map[string]any)["properties"].(map[string]any)
	for field, n := range map[string]int{"reason": len(schemas.Reasons), "error_class": len(schemas.ErrorClasses), "outcome": len(outcomes)} {
		if got := properties[field].(map[string]any)["enum"].([]any); len(got) != n {
			t.Errorf("%s: the schema has %d values, the code %d", field, len(got), n)
		}
	}
}

func TestDeliveryHeadersFollowTheirSchema(t *testing.T) {
	sch := compileSchemas(t)("delivery-headers")
	rapid.Check(t, func(rt *rapid.T) {
		d := genDelivery().Draw(rt, "delivery")
		d.ErrorClass = schemas.ClassTLS
		d.Extra = slices.DeleteFunc(d.Extra, func(h schemas.Header) bool { return strings.HasPrefix(h.Key, "ce_") })
		validate(rt, sch, headersJSON(t, d.Headers()))
	})
}

func TestLetterHeadersFollowTheirSchema(t *testing.T) {
	sch := compileSchemas(t)("letter-headers")
	rapid.Check(t, func(rt *rapid.T) {
		d := genDelivery().Draw(rt, "delivery")
		d.ErrorClass = ""
		l := schemas.NewLetter(d, rapid.SampledFrom(schemas.Reasons).Draw(rt, "reason"), recordTime)
		l.Mark = rapid.SampledFrom([]schemas.PayloadMark{"", schemas.PayloadNull, schemas.PayloadOmitted}).Draw(rt, "mark")
		validate(rt, sch, headersJSON(t, l.Headers()))
	})
	rec := record("x")
	rec.Key = []byte("no endpoint")
	d, _ := schemas.ParseDelivery(rec)
	l := schemas.NewLetter(d, schemas.ReasonMalformed, recordTime)
	validate(t, sch, headersJSON(t, l.Headers()))
}

func TestOtherRecordsFollowTheirSchemas(t *testing.T) {
	get := compileSchemas(t)
	one := int64(1)
	episode := &schemas.Episode{FailingSince: recordTime, Attempts: 3, LastError: "x", LastStatus: 500, LastClass: schemas.ClassTimeout, BreakerStep: 1,
		OpenUntil: recordTime, DisabledVersion: 2, DisabledReason: "410", Notified: []string{string(schemas.NoticeFailing)}}
	endpoint := schemas.Endpoint{ID: "ep_1", Tenant: "acme", URL: "https://example.com/", Description: "d", EventTypes: []string{"order.*"}, State: schemas.StateEnabled,
		Reason: "r", Secrets: []schemas.Secret{{Sealed: "v1.k.x", CreatedAt: recordTime, ExpiresAt: recordTime, PublicKey: "whpk_x"}}, MaxInFlight: 5,
		Signing:   schemas.Signing{Schemes: []schemas.Scheme{schemas.SchemeStandard, schemas.SchemeBody}, Header: "h", TimestampHeader: "t", IDHeader: "i", Prefix: "sha256=", Rotation: "both"},
		RateLimit: &schemas.RateLimit{Rate: 5, Burst: 5}, Timeout: schemas.Duration(1500 * time.Millisecond),
		Retry:   schemas.Retry{Preset: "fast", Schedule: []schemas.Duration{schemas.Duration(time.Minute)}, FinalStatuses: []string{"404", "4xx"}, MaxAge: schemas.Duration(time.Hour)},
		Headers: []schemas.Pair{{Name: "a", Value: "b"}}, ForwardHeaders: []string{"x"}, NoCEHeaders: true, Owner: "o@example.com", Metadata: []schemas.Pair{{Name: "a", Value: "b"}},
		Auth: &schemas.Auth{Basic: &schemas.BasicAuth{User: "u", Password: "sealed"}, Bearer: "sealed"}, Version: 3, CreatedAt: recordTime, UpdatedAt: recordTime}
	run := schemas.Run{ID: "run-1", Kind: schemas.RunReplay, Who: "w", Why: "y", Runner: "host/1", Filter: json.RawMessage(`{"reason":["gone"]}`), Endpoints: []string{"ep_1"},
		ToEndpoint: "ep_2", Rate: 500, Snapshot: map[int32]int64{0: 17, 3: 0}, From: map[int32]int64{0: 9}, Counts: schemas.RunCounts{Matched: 5, Written: 3, Skipped: map[string]int64{"endpoint_disabled": 2}},
		State: schemas.RunFailed, Error: "e", Started: recordTime, Updated: recordTime, Finished: recordTime}
	for _, tc := range []struct {
		schema string
		value  any
	}{
		{"endpoint", endpoint},
		{"endpoint", schemas.Endpoint{ID: "e", State: schemas.StateDeleted, EventTypes: []string{}, Version: 1}},
		{"health", schemas.Health{Claim: 5, Next: &one, Last: &one, Held: 1, Since: episode, Paused: &schemas.Pause{Until: recordTime, Status: 429, Version: 1}, Written: 5}},
		{"health", schemas.Health{Since: &schemas.Episode{}}},
		{"notice", schemas.Notice{ID: schemas.NoticeID("ep_1", schemas.NoticeDisabled, recordTime), Kind: schemas.NoticeDisabled, EndpointID: "ep_1", Tenant: "t", URL: "u", Owner: "o",
			FailingSince: recordTime, At: recordTime, Attempts: 20, Reason: "r", LastStatus: 500, LastClass: schemas.ClassTLS, LastError: "e"}},
		{"audit", schemas.Audit{Subject: "endpoint/ep_1", Action: "update", Who: "w", Door: "cli", At: recordTime, Version: 2, Why: "y", Changes: []schemas.Change{{Field: "url", From: "a", To: "b"}}}},
		{"run", run},
		{"run", schemas.Run{ID: "r", Kind: schemas.RunDiscard, Filter: json.RawMessage(`{}`), State: schemas.RunRunning}},
		{"run-control", schemas.RunControl{Run: "run-1", Cancel: true, Who: "w", Why: "y", At: recordTime}},
	} {
		t.Run(tc.schema, func(t *testing.T) { validate(t, get(tc.schema), marshal(t, tc.value)) })
	}
	var back schemas.Run
	if err := json.Unmarshal(marshal(t, run), &back); err != nil || back.Snapshot[0] != 17 {
		t.Error(back, err)
	}
}

func TestSchemasRefuseWhatMilenaWouldNotWrite(t *testing.T) {
	get := compileSchemas(t)
	for schema, bad := range map[string]string{
		"attempt":          `{"delivery_id":"x"}`,
		"delivery-headers": `{"ce_specversion":"1.0","ce_id":"1","ce_source":"s","ce_type":"t","milena-origin":"orders-a1b2c3d4-3-99","milena-attempt":"x"}`,
		"letter-headers":   `{"ce_specversion":"1.0","ce_id":"1","ce_source":"s","ce_type":"t","milena-origin":"orders-a1b2c3d4-3-99","milena-reason":"bored","milena-died-at":"1"}`,
		"notice":           `{"id":"ntc_1"}`,
		"run":              `{"id":"r","kind":"nap"}`,
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(bad))
		if err != nil {
			t.Fatal(err)
		}
		if get(schema).Validate(v) == nil {
			t.Errorf("%s takes %s", schema, bad)
		}
	}
}
