package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/publish"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// cluster is an embedded broker with Milena's topics, and the environment that
// leads a command there.
func cluster(t *testing.T) (*testkit.Fake, []string) {
	t.Helper()
	inDir(t)
	fake := testkit.NewFake(t, testkit.WithBrokers(1))
	env := []string{"MILENA_KAFKA_BROKERS=" + strings.Join(fake.Brokers(), ",")}
	if res := run(t, "", env, "topics", "plan"); res.code != exitDifferences || !strings.Contains(res.out, "+ webhooks.deliveries is missing") {
		t.Fatalf("plan of an empty cluster: %+v", res)
	}
	if res := run(t, "", env, "topics", "apply"); res.code != exitDone {
		t.Fatalf("apply: %+v", res)
	}
	return fake, env
}

// A cluster may take its time for a topic: that the others are not there yet is what the
// command is about, and no reason to end it.
func TestTopicsApplyOnASlowClusterMakesThemAll(t *testing.T) {
	inDir(t)
	fake := testkit.NewFake(t, testkit.WithBrokers(1))
	c := fake.Cluster()
	c.ControlKey(int16(kmsg.CreateTopics), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.SleepControl(func() { <-time.After(5 * missingTopicsPause / 2) }) // once: the others are made at once
		return nil, nil, false
	})
	env := []string{"MILENA_KAFKA_BROKERS=" + strings.Join(fake.Brokers(), ",")}
	if res := run(t, "", env, "topics", "apply", "--timeout", "1m"); res.code != exitDone {
		t.Errorf("%+v", res)
	}
}

func TestTopicsPlanEndsWithThreeUntilAllIsApplied(t *testing.T) {
	_, env := cluster(t)
	if res := run(t, "", env, "topics", "plan"); res.code != exitDone || res.out != "all topics are as they shall be\n" {
		t.Errorf("%+v", res)
	}
	res := run(t, "", env, "topics", "plan", "--json", "--retry-max-age", "240h")
	var plan kafka.Plan
	if err := json.Unmarshal([]byte(res.out), &plan); err != nil || res.code != exitDifferences || len(plan.Differences) == 0 {
		t.Errorf("%v %+v", err, res)
	}
}

func TestSendWritesWhatADispatcherReads(t *testing.T) {
	fake, env := cluster(t)
	res := run(t, "[2, 1.0]", env, "send", "--endpoint", "shop-1", "--type", "a.b", "--subject", "s", "--id", "e", "--data", "-", "--canonical", "--count", "3", "--json")
	if res.code != exitDone {
		t.Fatalf("%+v", res)
	}
	sent := map[string]publish.Sent{}
	for line := range strings.Lines(res.out) {
		var s publish.Sent
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		sent[s.EventID] = s
	}
	cl := fake.Client(kgo.ConsumeTopics("webhooks.deliveries"))
	topic := fake.Cluster().TopicInfo("webhooks.deliveries")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for n := 0; n < 3; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for _, rec := range fetches.Records() {
			n++
			d, err := schemas.ParseDelivery(kafka.FromKgo(rec, topic.TopicID))
			if err != nil || string(d.Payload) != "[2,1]" {
				t.Fatalf("%v %s", err, d.Payload)
			}
			s := sent[d.Event.ID]
			if s.DeliveryID != d.ID() || s.MessageID != d.MessageID() || rec.Partition != kafka.Partition([]byte("shop-1"), 12) || d.Event.Subject != "s" {
				t.Errorf("%+v is printed for %+v", s, d)
			}
		}
	}
	for _, id := range []string{"e-1", "e-2", "e-3"} {
		if sent[id].DeliveryID == "" {
			t.Errorf("%s is missing in %s", id, res.out)
		}
	}
	if res := run(t, "", env, "send", "--type", "nobody.wants", "--data", "x"); res.code != exitFailed || !strings.Contains(res.err, "no endpoint without tenant subscribes to nobody.wants") {
		t.Errorf("%+v", res)
	}
}

func TestAttemptsShowsTheLogOldestFirst(t *testing.T) {
	fake, env := cluster(t)
	base := time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)
	cl := fake.Client()
	for i, endpoint := range []string{"one", "two", "one", "two", "one"} {
		a := schemas.Attempt{DeliveryID: "webhooks.deliveries-00000000-0-" + string(rune('0'+i)) + "." + endpoint, EndpointID: endpoint, EventID: "e",
			Type: "a.b\x1b[31m", Outcome: schemas.OutcomeDelivered, Status: 204, Number: 1, Started: base.Add(time.Duration(i) * time.Second)}
		if i == 3 {
			a.Outcome, a.Status, a.NextTry = schemas.OutcomeRetry, 500, time.Now().UTC().Add(time.Hour)
		}
		value, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		testkit.Produce(t, cl, &kgo.Record{Topic: "webhooks.attempts", Partition: kafka.Partition([]byte(endpoint), 12), Key: []byte(endpoint), Value: value})
	}
	testkit.Produce(t, cl, &kgo.Record{Topic: "webhooks.attempts", Value: []byte("no attempt")})

	ids := func(args ...string) string {
		res := run(t, "", env, append([]string{"attempts", "--json"}, args...)...)
		if res.code != 0 {
			t.Fatalf("%v: %+v", args, res)
		}
		var list []string
		for line := range strings.Lines(res.out) {
			var a schemas.Attempt
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatal(err)
			}
			list = append(list, a.DeliveryID[len("webhooks.deliveries-00000000-0-"):])
		}
		return strings.Join(list, " ")
	}
	for _, c := range []struct{ args, want string }{
		{"", "0.one 1.two 2.one 3.two 4.one"},
		{"--endpoint one", "0.one 2.one 4.one"},
		{"--endpoint one --limit 2", "2.one 4.one"},
		{"--limit 3", "2.one 3.two 4.one"},
		{"--failed", "3.two"},
		{"--delivery webhooks.deliveries-00000000-0-2.one", "2.one"},
		{"--since " + base.Add(2*time.Second).Format(time.RFC3339Nano), "2.one 3.two 4.one"},
		{"--event other", ""},
	} {
		if got := ids(strings.Fields(c.args)...); got != c.want {
			t.Errorf("attempts %s: %s, want %s", c.args, got, c.want)
		}
	}
	res := run(t, "", env, "attempts", "--failed")
	if !strings.Contains(res.out, "next try at") || strings.ContainsRune(res.out, '\x1b') {
		t.Errorf("%q", res.out)
	}
}

func TestASilentKafkaIsOneSentenceAndExitOne(t *testing.T) {
	inDir(t)
	closed := testkit.ReserveAddr(t)
	env := []string{"MILENA_KAFKA_BROKERS=" + closed}
	for _, args := range []string{"topics plan", "send --endpoint a --data x", "attempts"} {
		res := run(t, "", env, append(strings.Fields(args), "--timeout", "1s")...)
		if res.code != exitFailed || strings.Count(res.err, "\n") != 1 || !strings.Contains(res.err, "gave no answer within 1s (--timeout)") ||
			!strings.Contains(res.err, "dial tcp "+closed) {
			t.Errorf("%s: %+v", args, res)
		}
	}
}

// One broker of several is dead, and another keeps us waiting: that is the trouble.
func TestOfABrokerThatAnswersItIsNotSaidThatNoneDoes(t *testing.T) {
	inDir(t)
	fake := testkit.NewFake(t, testkit.WithTopics(testkit.Topic{Name: "webhooks.dlq", Partitions: 1}))
	p := &program{out: io.Discard, err: io.Discard, environ: []string{"MILENA_KAFKA_BROKERS=" + fake.Brokers()[0]}}
	s, err := p.connect(settings(&cobra.Command{}), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{testkit.ReserveAddr(t), fake.Brokers()[0]} {
		if conn, err := s.dial(t.Context(), "tcp", addr); err == nil {
			_ = conn.Close()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if err := s.explain(ctx, errors.New("partition 7 has no leader")); !strings.Contains(err.Error(), "within 1s (--timeout): partition 7 has no leader (dial tcp ") {
		t.Error(err)
	}
}

func TestAMissingTopicNamesTheCommandThatMakesIt(t *testing.T) {
	inDir(t)
	fake := testkit.NewFake(t)
	key, err := registry.GenerateKey("k")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"MILENA_KAFKA_BROKERS=" + fake.Brokers()[0], "MILENA_KEYRING=" + key}
	for _, args := range []string{"send --endpoint a --data x", "send --type a --data x", "attempts", "endpoint list", "endpoint create --url https://example.com/", "endpoint test a"} {
		res := run(t, "", env, append(strings.Fields(args), "--timeout", "2s")...)
		if res.code != exitFailed || !strings.Contains(res.err, "milena topics apply") {
			t.Errorf("%s: %+v", args, res)
		}
	}
}

func TestWhatHasNoTopicsYetIsToldSoAtOnce(t *testing.T) {
	inDir(t)
	fake := testkit.NewFake(t, testkit.WithBrokers(1))
	env := []string{"MILENA_KAFKA_BROKERS=" + strings.Join(fake.Brokers(), ",")}
	// Who has to wait for --timeout to learn it fails this test by its deadline.
	for _, args := range [][]string{{"endpoint", "list"}, {"endpoint", "explain", "x"}, {"runs", "list"}, {"dlq", "summary"}, {"attempts"}, {"lag"}, {"send", "--endpoint", "x", "--data", "{}"}} {
		res := run(t, "", env, append(args, "--timeout", "1h")...)
		if res.code != exitFailed || res.err != "milena: none of Milena's topics is there (prefix \"webhooks.\"); milena topics apply makes them\n" {
			t.Errorf("%v: %+v", args, res)
		}
	}
	if res := run(t, "", env, "topics", "apply"); res.code != exitDone {
		t.Fatalf("%+v", res)
	}
	names := schemas.Names{Prefix: schemas.DefaultPrefix}
	if _, err := kadm.NewClient(fake.Client()).DeleteTopics(t.Context(), names.Endpoints()); err != nil {
		t.Fatal(err)
	}
	if res := run(t, "", env, "endpoint", "list", "--timeout", "1h"); res.code != exitFailed || res.err != "milena: topic webhooks.endpoints is missing; milena topics apply makes it\n" {
		t.Errorf("%+v", res)
	}
}
