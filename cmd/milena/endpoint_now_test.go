package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestListAndGetSayWhatAnEndpointIsInNow(t *testing.T) {
	env := registered(t)
	receiver := testkit.NewReceiver(t)
	receiver.Script("/gone", testkit.Always(testkit.Answer{Status: 410}))
	receiver.Script("/down", testkit.Always(testkit.Answer{Status: 500}))
	receiver.Script("/busy", testkit.Always(testkit.Answer{Status: 429, Header: http.Header{"Retry-After": {"600"}}}))
	for _, id := range []string{"gone", "down", "busy", "well", "off"} {
		must(t, env, "endpoint", "create", "--id", id, "--url", receiver.URL("/"+id))
	}
	must(t, env, "endpoint", "disable", "off", "--reason", "asked for")
	ctx, stop := context.WithCancel(t.Context())
	code := make(chan int)
	go func() {
		p := &program{in: strings.NewReader(""), out: io.Discard, err: io.Discard, environ: env}
		code <- p.run(ctx, []string{"serve", "--http-addr", "127.0.0.1:0", "--initial-offset", "earliest"})
	}()
	for id, n := range map[string]string{"gone": "1", "down": "20", "busy": "1", "well": "1"} {
		must(t, env, "send", "--endpoint", id, "--data", "{}", "--count", n)
	}
	// lines are those of an output that begin with an id, by it.
	lines := func(out string) map[string]string {
		byID := map[string]string{}
		for line := range strings.Lines(out) {
			id, rest, _ := strings.Cut(line, " ")
			byID[id] = rest
		}
		return byID
	}
	says := map[string]string{"gone": "disabled since 20", "down": "breaker open, next try", "busy": "paused until 20", "well": "enabled", "off": "disabled"}
	testkit.Eventually(t, time.Minute, func() string {
		out := must(t, env, "endpoint", "list")
		for id, state := range says {
			if got := lines(out)[id]; !strings.Contains(got, " "+state) {
				return out + "\n" + id + " is not " + state
			}
		}
		return ""
	})
	if out := must(t, env, "endpoint", "list"); !strings.Contains(lines(out)["gone"], ": 410 Gone ") {
		t.Errorf("%s", out)
	}
	stop() // what follows holds also when every process is dead
	if c := <-code; c != exitDone {
		t.Errorf("exit %d", c)
	}
	out := must(t, env, "endpoint", "list", "--json")
	for _, part := range []string{`"now":{"state":"disabled","why":"410 Gone","since":"20`, `"now":{"state":"open","why":"status 500","since":"20`,
		`"now":{"state":"paused","why":"it answered 429 with Retry-After","until":"20`, `"now":{"state":"enabled"}`, `"now":{"state":"disabled","why":"asked for"}`} {
		if strings.Count(out, part) != 1 {
			t.Errorf("%s\nlacks %s", out, part)
		}
	}
	if out := must(t, env, "endpoint", "get", "gone"); !strings.Contains(lines(out)["state"], "disabled since 20") {
		t.Errorf("%s", out)
	}
	if out := must(t, env, "endpoint", "get", "gone", "--json"); !strings.Contains(out, `"state":"enabled"`) || !strings.Contains(out, `"now":{"state":"disabled","why":"410 Gone"`) {
		t.Errorf("%s", out)
	}
	must(t, env, "endpoint", "enable", "gone")
	for _, verb := range []string{"list", "get gone"} { // a newer version is an operator's word
		if out := must(t, env, append([]string{"endpoint"}, strings.Fields(verb)...)...); strings.Contains(out, "disabled since") {
			t.Errorf("%s", out)
		}
	}
}

func TestWhoMayNotReadHealthIsToldThatTheStatesAreTheRegisteredOnes(t *testing.T) {
	inDir(t)
	read := kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "webhooks.endpoints", Pattern: kmsg.ACLResourcePatternTypeLiteral,
		Operation: kmsg.ACLOperationRead, Allow: true}
	fake := testkit.NewFake(t, testkit.WithBrokers(1), testkit.WithKfake(kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.Superuser("PLAIN", "admin", "a"), kfake.User("PLAIN", "reader", "r", read)))
	as := func(user, password string) []string {
		return []string{"MILENA_KAFKA_BROKERS=" + strings.Join(fake.Brokers(), ","), "MILENA_KAFKA_SASL_MECHANISM=PLAIN",
			"MILENA_KAFKA_SASL_USER=" + user, "MILENA_KAFKA_SASL_PASSWORD=" + password}
	}
	must(t, as("admin", "a"), "topics", "apply")
	must(t, append(as("admin", "a"), registryKey(t)), "endpoint", "create", "--id", "shop", "--url", "https://shop.example/")
	for _, verb := range []string{"list", "get shop", "list --json"} {
		res := run(t, "", as("reader", "r"), append([]string{"endpoint"}, strings.Fields(verb)...)...)
		if res.code != exitDone || !strings.Contains(res.err, "the states are the registered ones") || !strings.Contains(res.err, "operation Read on Topic webhooks.health") ||
			!strings.Contains(res.out, "enabled") || strings.HasSuffix(verb, "--json") != strings.Contains(res.out, `"now":{"state":"unknown"}`) {
			t.Errorf("%s: %+v", verb, res)
		}
	}
	if res := run(t, "", as("reader", "r"), "endpoint", "list", "--failing"); res.code != exitFailed || !strings.Contains(res.err, "operation Read on Topic webhooks.health") {
		t.Errorf("%+v", res)
	}
}

func TestListAndGetShowWhatIsRegisteredWhenHealthCannotBeRead(t *testing.T) {
	fake, env := cluster(t)
	bury(t, fake, "shop-1")
	names := schemas.Names{Prefix: schemas.DefaultPrefix}
	if _, err := kadm.NewClient(fake.Client()).DeleteTopics(t.Context(), names.Health()); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"list", "get shop-1", "list --json"} {
		res := run(t, "", env, append([]string{"endpoint"}, strings.Fields(verb)...)...)
		if res.code != exitDone || !strings.Contains(res.err, "the states are the registered ones") || !strings.Contains(res.err, "topic webhooks.health is missing") ||
			!strings.Contains(res.out, "enabled") || strings.HasSuffix(verb, "--json") != strings.Contains(res.out, `"now":{"state":"unknown"}`) {
			t.Errorf("%s: %+v", verb, res)
		}
	}
	if res := run(t, "", env, "endpoint", "list", "--failing"); res.code != exitFailed || !strings.Contains(res.err, "webhooks.health is missing") {
		t.Errorf("%+v", res)
	}
}

func TestTroubleInAPartitionThatAnEndpointHadIsOverAndItsHoldIsAdded(t *testing.T) {
	fake, env := cluster(t)
	bury(t, fake, "shop-1")
	names := schemas.Names{Prefix: schemas.DefaultPrefix}
	ever := kafka.PartitionsEver([]byte("shop-1"), 12)
	put := func(p int32, h schemas.Health) {
		t.Helper()
		value, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		cl := fake.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: names.Health(), Partition: p, Key: []byte("shop-1"), Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	next := int64(0)
	episode := &schemas.Episode{FailingSince: time.Now(), Attempts: 9, BreakerStep: 1, OpenUntil: time.Now().Add(time.Hour)}
	put(ever[1], schemas.Health{Version: 1, Since: episode})
	for _, verb := range []string{"list", "get shop-1"} {
		if out := must(t, env, append([]string{"endpoint"}, strings.Fields(verb)...)...); strings.Contains(out, "breaker") {
			t.Errorf("%s: %s", verb, out)
		}
	}
	put(ever[1], schemas.Health{Version: 1, Since: episode, Next: &next, Held: 40})
	put(ever[0], schemas.Health{Version: 1, Next: &next, Held: 2})
	if out := must(t, env, "endpoint", "explain", "shop-1"); !strings.Contains(out, "on hold: 42 as of") || strings.Contains(out, "breaker") {
		t.Errorf("%s", out)
	}
	if out := run(t, "", env, "lag", "--json").out; !strings.Contains(out, `"endpoint_id":"shop-1","records":42`) {
		t.Errorf("%s", out)
	}
}
