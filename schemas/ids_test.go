package schemas_test

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

func TestMessageIDsDependOnSourceAndIDOnly(t *testing.T) {
	const fixed = "msg_rpadd2b44jw2a2b6y5suzeezhh" // a change of it is a change of every receiver's idempotency key
	if got := schemas.MessageID("/shop/orders", "evt-1"); got != fixed {
		t.Errorf("%s, want %s", got, fixed)
	}
	rapid.Check(t, func(t *rapid.T) {
		source, id := rapid.String().Draw(t, "source"), rapid.StringN(0, 400, 1200).Draw(t, "id")
		sum := sha256.Sum256([]byte(source + "\x00" + id))
		want := "msg_" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:26]
		if got := schemas.MessageID(source, id); got != want || strings.Contains(got, ".") {
			t.Fatalf("%s, want %s", got, want)
		}
	})
	if schemas.MessageID("a", "b") == schemas.MessageID("b", "a") {
		t.Error("source and id are confused")
	}
}

func TestADeliveryIDCanBeTakenApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := schemas.Delivery{Origin: genOrigin().Draw(t, "origin"), EndpointID: genEndpointID().Draw(t, "endpoint")}
		o, endpoint, err := schemas.ParseDeliveryID(d.ID())
		if err != nil || o != d.Origin || endpoint != d.EndpointID {
			t.Fatal(o, endpoint, err)
		}
	})
	for _, bad := range []string{"", ".", "x.y", "webhooks.deliveries-1-2.ep", ownOrigin + ".e p", ownOrigin, ownOrigin + "." + strings.Repeat("e", 65)} {
		if _, _, err := schemas.ParseDeliveryID(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestEndpointIDs(t *testing.T) {
	for _, good := range []string{"a", "ep_1", "A-Z", "0", "-", "_", strings.Repeat("x", 64)} {
		if !schemas.ValidEndpointID(good) {
			t.Errorf("%q was refused", good)
		}
	}
	for _, bad := range []string{"", "a.b", "a b", "ü", "a/b", "a\n", strings.Repeat("x", 65)} {
		if schemas.ValidEndpointID(bad) {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestANoticeHasOneIDHoweverOftenItIsWritten(t *testing.T) {
	since := time.UnixMilli(1764500000123)
	id := schemas.NoticeID("ep_1", schemas.NoticeFailing, since)
	if id != schemas.NoticeID("ep_1", schemas.NoticeFailing, since.UTC()) || len(id) != 30 || !strings.HasPrefix(id, "ntc_") {
		t.Error(id)
	}
	for _, other := range []string{schemas.NoticeID("ep_2", schemas.NoticeFailing, since), schemas.NoticeID("ep_1", schemas.NoticeDisabled, since),
		schemas.NoticeID("ep_1", schemas.NoticeFailing, since.Add(time.Millisecond))} {
		if other == id {
			t.Error("two notices share an id")
		}
	}
}

func TestARunIsLiveWhileItsRunnerWrites(t *testing.T) {
	now := time.Now()
	r := schemas.Run{State: schemas.RunRunning, Updated: now.Add(-29 * time.Second)}
	if !r.Live(now) {
		t.Error("29 s old")
	}
	if r.Live(now.Add(time.Second)) {
		t.Error("30 s old")
	}
	if r.State = schemas.RunDone; r.Live(now) {
		t.Error("done")
	}
}

func TestTiersAreNamedByTheirDelay(t *testing.T) {
	for delay, want := range map[time.Duration]string{0: "webhooks.retry.0s", 10 * time.Second: "webhooks.retry.10s", time.Minute: "webhooks.retry.1m",
		90 * time.Minute: "webhooks.retry.90m", 24 * time.Hour: "webhooks.retry.24h", 61 * time.Second: "webhooks.retry.61s"} {
		if got := (schemas.Names{Prefix: "webhooks."}).Retry(delay); got != want {
			t.Errorf("%v: %s, want %s", delay, got, want)
		}
	}
}

// Topic and group names are in people's ACLs and configurations.
func TestNamesBeginWithThePrefix(t *testing.T) {
	n := schemas.Names{Prefix: "acme."}
	got := []string{n.Deliveries(), n.Hold(), n.DLQ(), n.Attempts(), n.Endpoints(), n.Health(), n.Runs(), n.Notices(), n.Audit(), n.RetryPrefix(),
		n.Group("router"), n.RegistryTransactionalID(), schemas.RunControlKey("acme.run")}
	want := []string{"acme.deliveries", "acme.hold", "acme.dlq", "acme.attempts", "acme.endpoints", "acme.health", "acme.runs", "acme.notices", "acme.audit",
		"acme.retry.", "acme.router", "acme.registry", "acme.run.control"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestDurationsAreWrittenAsWords(t *testing.T) {
	b, err := json.Marshal(schemas.Retry{Schedule: []schemas.Duration{schemas.Duration(90 * time.Second)}, MaxAge: schemas.Duration(96 * time.Hour)})
	if err != nil || string(b) != `{"schedule":["1m30s"],"max_age":"96h0m0s"}` {
		t.Error(string(b), err)
	}
	var r schemas.Retry
	if err := json.Unmarshal(b, &r); err != nil || time.Duration(r.MaxAge) != 96*time.Hour {
		t.Error(r, err)
	}
	if err := json.Unmarshal([]byte(`{"max_age":"soon"}`), &r); err == nil {
		t.Error("soon is no duration")
	}
}

func BenchmarkMessageID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = schemas.MessageID("/shop/orders", "evt-0192837465")
	}
}
