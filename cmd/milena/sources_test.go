package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/router"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestSourcesCheckShowsWhoWouldGetWhatAndWhy(t *testing.T) {
	fake, env := cluster(t)
	fake.CreateTopics(testkit.Topic{Name: "orders", Partitions: 2}, testkit.Topic{Name: "empty", Partitions: 1})
	keyring := "MILENA_KEYRING=k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	env = append(env, keyring, "MILENA_SOURCES_TOPICS=orders", "MILENA_SOURCES_TENANTS=orders=header:shop")
	for id, tenant := range map[string][]string{"one": {"--tenant", "acme"}, "two": {"--tenant", "acme"}, "three": nil} {
		args := append([]string{"endpoint", "create", "--id", id, "--url", "https://example.com/hook", "--event-types", "order.*"}, tenant...)
		if res := run(t, "", env, args...); res.code != exitDone {
			t.Fatalf("%+v", res)
		}
	}
	kind := func(v string) kgo.RecordHeader { return kgo.RecordHeader{Key: "ce_type", Value: []byte(v)} }
	cl := fake.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i, rec := range []*kgo.Record{
		{Partition: 0, Value: []byte("old"), Headers: []kgo.RecordHeader{kind("old")}},
		{Partition: 0, Value: []byte("{}"), Headers: []kgo.RecordHeader{kind("order.paid"), {Key: "shop", Value: []byte("acme")}}},
		{Partition: 1, Value: []byte("{}"), Headers: []kgo.RecordHeader{kind("stock.low\x1b[31m")}},
	} {
		rec.Topic, rec.Timestamp = "orders", time.Now().Add(time.Duration(i-9)*time.Second)
		testkit.Produce(t, cl, rec)
	}
	res := run(t, "", env, "sources", "check", "--json", "--last", "2")
	var seen []router.Seen
	for line := range strings.Lines(res.out) {
		var s router.Seen
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, s)
	}
	if res.code != exitDone || len(seen) != 2 || strings.Join(seen[0].Endpoints, " ") != "one two" || seen[0].Tenant != "acme" || len(seen[1].Endpoints) != 0 {
		t.Errorf("%+v", res)
	}
	testkit.Produce(t, cl, &kgo.Record{Topic: "orders", Partition: 1}, &kgo.Record{Topic: "orders", Partition: 1, Headers: []kgo.RecordHeader{kind("order.paid")}})
	res = run(t, "", env, "sources", "check", "orders", "empty")
	for _, want := range []string{"orders/0@1", "tenant acme", "to one, two\n", "no endpoint without tenant subscribes to stock.low", "no event: a tombstone", "dead letter: malformed record: the value is null"} {
		if !strings.Contains(res.out, want) {
			t.Errorf("%q is missing in %s", want, res.out)
		}
	}
	if res.code != exitFailed || !strings.Contains(res.err, "empty holds no records") || !strings.Contains(res.err, "1 of 5 records would be dead letters") || strings.Contains(res.out, "\x1b") {
		t.Errorf("%+v", res)
	}
}

func TestSourcesCheckDoesNotSendYouToTopicsApplyForYourOwnTopic(t *testing.T) {
	_, env := cluster(t)
	if res := run(t, "", env, "sources", "check", "nonsense"); res.code != exitFailed || !strings.Contains(res.err, "no such topic: nonsense; sources are topics of your own") {
		t.Errorf("%+v", res)
	}
}

func TestSourcesCheckWithoutATopicIsAMistakeInUsage(t *testing.T) {
	inDir(t)
	env := []string{"MILENA_KAFKA_BROKERS=127.0.0.1:1"}
	if res := run(t, "", env, "sources", "check"); res.code != exitUsage || !strings.Contains(res.err, "sources.topics") {
		t.Errorf("%+v", res)
	}
	env = append(env, "MILENA_SOURCES_TOPICS=webhooks.deliveries,orders", "MILENA_SOURCES_TYPES=payments=a.b")
	if res := run(t, "", env, "sources", "check"); res.code != exitUsage ||
		!strings.Contains(res.err, "webhooks.deliveries is one of Milena's") || !strings.Contains(res.err, "payments is none") {
		t.Errorf("%+v", res)
	}
}

func TestResendFromSourcesReachesAnEndpointThatCameLater(t *testing.T) {
	fake, env := cluster(t)
	fake.CreateTopics(testkit.Topic{Name: "orders", Partitions: 2})
	if res := run(t, "", env, "resend", "--event", "e1", "--from-sources", "--yes"); res.code != exitUsage || !strings.Contains(res.err, "sources.topics") {
		t.Errorf("without a source: %+v", res)
	}
	env = append(env, "MILENA_KEYRING=k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "MILENA_SOURCES_TOPICS=orders", "MILENA_SOURCES_TENANTS=orders=header:shop")
	cl := fake.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i, id := range []string{"e1", "e2"} {
		testkit.Produce(t, cl, &kgo.Record{Topic: "orders", Partition: int32(i), Value: []byte(id + "'s bytes"), Headers: []kgo.RecordHeader{
			{Key: "ce_id", Value: []byte(id)}, {Key: "ce_source", Value: []byte("/shop")}, {Key: "ce_type", Value: []byte("order.paid")}, {Key: "shop", Value: []byte("acme")}}})
	}
	for id, types := range map[string]string{"late": "order.*", "other": "stock.*"} {
		if res := run(t, "", env, "endpoint", "create", "--id", id, "--tenant", "acme", "--url", "https://example.com/hook", "--event-types", types); res.code != exitDone {
			t.Fatalf("%+v", res)
		}
	}
	res := run(t, "", env, "resend", "--event", "e1", "--from-sources", "--yes", "--json")
	var rep dlq.Report
	if err := json.Unmarshal([]byte(res.out), &rep); err != nil || res.code != exitDone || rep.Run.Counts.Written != 1 {
		t.Fatalf("%v %+v", err, res)
	}
	names := schemas.Names{Prefix: schemas.DefaultPrefix}
	consumer := fake.Client(kgo.ConsumeTopics(names.Deliveries()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, rec := range consumer.PollFetches(ctx).Records() {
		if string(rec.Key) != "late" || string(rec.Value) != "e1's bytes" {
			t.Errorf("%s: %s", rec.Key, rec.Value)
		}
	}
	if ctx.Err() != nil {
		t.Error("nothing was written")
	}
}
