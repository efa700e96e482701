package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/publish"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
)

// registered is the environment of an installation with a key ring that allows
// endpoints on this machine.
func registered(t *testing.T) []string {
	t.Helper()
	_, env := cluster(t)
	return append(env, registryKey(t), "MILENA_EGRESS_ALLOW_HTTP=true", "MILENA_EGRESS_ALLOW_CIDRS=127.0.0.0/8,::1")
}

// registryKey sets a new key ring.
func registryKey(t *testing.T) string {
	t.Helper()
	key, err := registry.GenerateKey("test")
	if err != nil {
		t.Fatal(err)
	}
	return "MILENA_KEYRING=" + key
}

// must runs a command that has to succeed and returns what it printed.
func must(t *testing.T, env []string, args ...string) string {
	t.Helper()
	res := run(t, "", env, args...)
	if res.code != exitDone {
		t.Fatalf("milena %s: %+v", strings.Join(args, " "), res)
	}
	return res.out
}

func TestTheLifeOfAnEndpoint(t *testing.T) {
	env := registered(t)
	out := must(t, env, "endpoint", "create", "--id", "shop", "--url", "http://127.0.0.1:3000/hook", "--event-types", "order.*,paid", "--rate", "5", "--schedule", "2s,5s,10s", "--header", "X-A: b")
	secret := ""
	for line := range strings.Lines(out) {
		if s, ok := strings.CutPrefix(line, "secret  "); ok {
			secret = strings.TrimSpace(s)
		}
	}
	if !strings.HasPrefix(secret, "whsec_") {
		t.Fatalf("no secret in %q", out)
	}
	if out := must(t, env, "endpoint", "get", "shop"); strings.Contains(out, secret) || !strings.Contains(out, "after 2s 5s 10s") || !strings.Contains(out, "5 a second, burst 5") || !strings.Contains(out, "X-A: b") {
		t.Errorf("%s", out)
	}
	if res := run(t, "", env, "endpoint", "create", "--id", "shop", "--url", "http://127.0.0.1:3000/"); res.code != exitFailed || !strings.Contains(res.err, "the endpoint id is taken") {
		t.Errorf("%+v", res)
	}
	must(t, env, "endpoint", "update", "shop", "--url", "http://127.0.0.1:4000/", "--rate", "0", "--if-version", "1")
	if res := run(t, "", env, "endpoint", "update", "shop", "--owner", "x", "--if-version", "1"); res.code != exitFailed || !strings.Contains(res.err, "it is at version 2") {
		t.Errorf("%+v", res)
	}
	must(t, env, "endpoint", "update", "shop", "--retry", "fast")
	if out := must(t, env, "endpoint", "get", "shop"); strings.Contains(out, "after 2s") || !strings.Contains(out, "retry           fast") {
		t.Errorf("a preset that is asked for stands behind an old schedule:\n%s", out)
	}
	must(t, env, "endpoint", "disable", "shop", "--reason", "asked for")
	if out := must(t, env, "endpoint", "get", "shop", "--json"); strings.Contains(out, "sealed") || strings.Contains(out, "rate_limit") || !strings.Contains(out, `"state":"disabled","reason":"asked for"`) {
		t.Errorf("%s", out)
	}
	must(t, env, "endpoint", "enable", "shop")
	if out := must(t, env, "endpoint", "rotate-secret", "shop", "--json"); !strings.Contains(out, `"new_secrets":[{"secret":"whsec_`) || strings.Contains(out, "PublicKey") {
		t.Errorf("%s", out)
	}
	if res := run(t, "", env, "endpoint", "rotate-secret", "shop", "--overlap", "0s"); res.code != exitDone || !strings.Contains(res.err, "The old one signs no more.") {
		t.Errorf("%+v", res)
	}
	if res := run(t, "", env, "endpoint", "rotate-secret", "shop"); res.code != exitDone || !strings.Contains(res.err, "The old one signs beside it until 2") {
		t.Errorf("%+v", res)
	}
	if res := run(t, "", env, "endpoint", "create", "--url", "https://a.example/", "--scheme", "body,foo"); res.code != exitUsage || !strings.Contains(res.err, `signing: "body foo" is refused: `) {
		t.Errorf("%+v", res)
	}
	if res := run(t, "", env, "endpoint", "list", "--tenant", "nobody"); !strings.Contains(res.err, "no endpoint of tenant nobody; others have 1 endpoint") {
		t.Errorf("%+v", res)
	}
	var rotated struct {
		NewSecrets []registry.NewSecret `json:"new_secrets"`
	}
	if err := json.Unmarshal([]byte(must(t, env, "endpoint", "rotate-secret", "shop", "--json")), &rotated); err != nil || len(rotated.NewSecrets) != 1 || rotated.NewSecrets[0].Secret == secret {
		t.Errorf("%v %+v", err, rotated)
	}
	if out := must(t, env, "endpoint", "list"); !strings.Contains(out, "shop  -       enabled  order.*,paid  http://127.0.0.1:4000/") {
		t.Errorf("%s", out)
	}
	must(t, env, "endpoint", "delete", "shop")
	if res := run(t, "", env, "endpoint", "get", "shop"); res.code != exitFailed || !strings.Contains(res.err, "no such endpoint") {
		t.Errorf("%+v", res)
	}
	if res := run(t, "", env, "endpoint", "list"); res.code != exitDone || !strings.Contains(res.err, "no endpoints") {
		t.Errorf("%+v", res)
	}
}

func TestATypeFansOutToItsSubscribersAtOnce(t *testing.T) {
	env := registered(t)
	for id, types := range map[string]string{"a": "order.*", "b": "*", "c": "paid"} {
		must(t, env, "endpoint", "create", "--id", id, "--url", "http://127.0.0.1:3000/"+id, "--event-types", types)
	}
	must(t, env, "endpoint", "create", "--id", "t", "--tenant", "other", "--url", "http://127.0.0.1:3000/t")
	var endpoints []string
	messages := map[string]bool{}
	for line := range strings.Lines(must(t, env, "send", "--type", "order.created", "--data", "{}", "--json")) {
		var s publish.Sent
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		endpoints = append(endpoints, s.EndpointID)
		messages[s.MessageID] = true
	}
	if strings.Join(endpoints, " ") != "a b" || len(messages) != 1 {
		t.Errorf("%v %v", endpoints, messages)
	}
}

func TestASendToNobodySaysSo(t *testing.T) {
	env := registered(t)
	must(t, env, "endpoint", "create", "--id", "shop", "--url", "http://127.0.0.1:3000/")
	if res := run(t, "", env, "send", "--endpoint", "shop", "--data", "1"); res.code != exitDone || res.err != "" {
		t.Errorf("%+v", res)
	}
	res := run(t, "", env, "send", "--endpoint", "shob", "--data", "1")
	if res.code != exitDone || !strings.Contains(res.err, "no such endpoint: shob: unless it is registered within ten minutes") {
		t.Errorf("%+v", res)
	}
}

func TestRefusedEndpointsAreExplained(t *testing.T) {
	env := registered(t)
	if err := os.WriteFile("short", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"--url https://u:p@example.com/", "auth"},
		{"--url http://169.254.169.254/", "169.254"},
		{"--url http://127.0.0.1/ --header webhook-signature:x", "webhook-signature"},
		{"--url http://127.0.0.1/ --event-types=", "--event-types"},
		{"--url http://127.0.0.1/ --scheme nonsense", "nonsense"},
		{"--url http://127.0.0.1/ --basic-user u", "--basic-password-file"},
		{"--url http://127.0.0.1/ --basic-password-file short", "needs --basic-user"},
		{"--url http://127.0.0.1/ --retry fast --schedule 1s", "one of --retry and --schedule"},
		{"--url http://10.0.0.1/", "egress.allow_cidrs"},
		{"", "--url is missing"},
	} {
		res := run(t, "", env, append([]string{"endpoint", "create"}, strings.Fields(c.args)...)...)
		if res.code == exitDone || !strings.Contains(res.err, c.want) {
			t.Errorf("create %s: %+v, want %q", c.args, res, c.want)
		}
	}
	res := run(t, "", env[:1], "endpoint", "create", "--url", "https://example.com/")
	if res.code != exitUsage || !strings.Contains(res.err, "MILENA_KEYRING") {
		t.Errorf("without a key ring: %+v", res)
	}
}

func TestATestOfAnEndpointSaysThatNobodyServes(t *testing.T) {
	env := registered(t)
	must(t, env, "endpoint", "create", "--id", "shop", "--url", "http://127.0.0.1:3000/")
	res := run(t, "", env, "endpoint", "test", "shop", "--timeout", "3s")
	if res.code != exitFailed || !strings.Contains(res.err, "is milena serve running") || !strings.Contains(res.err, "milena endpoint explain shop") {
		t.Errorf("%+v", res)
	}
	if res := run(t, "", env, "endpoint", "test", "shob"); res.code != exitFailed || !strings.Contains(res.err, "no such endpoint: shob") {
		t.Errorf("a mistyped id: %+v", res)
	}
}

// handWritten puts a record into the registry as another writer than Milena may.
func handWritten(t *testing.T, env []string, key, value string) {
	t.Helper()
	brokers, _ := strings.CutPrefix(env[0], "MILENA_KAFKA_BROKERS=")
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(brokers, ",")...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	testkit.Produce(t, cl, &kgo.Record{Topic: "webhooks.endpoints", Key: []byte(key), Value: []byte(value)})
}

func TestAListLeavesOutWhatIsUnreadableAndSaysSo(t *testing.T) {
	env := registered(t)
	must(t, env, "endpoint", "create", "--id", "good", "--url", "http://127.0.0.1:3000/")
	handWritten(t, env, "bad", "{not json")
	for _, args := range []string{"", "--json", "--failing", "--tenant x"} {
		res := run(t, "", env, append([]string{"endpoint", "list"}, strings.Fields(args)...)...)
		if res.code != exitFailed || strings.Contains(res.out, "good") != (args == "" || args == "--json") ||
			!strings.Contains(res.err, `milena: the record of endpoint "bad" (partition 0, offset `) || !strings.Contains(res.err, "milena endpoint delete bad") ||
			!strings.Contains(res.err, "this is only a part: 1 unreadable record left out") {
			t.Errorf("%s: %+v", args, res)
		}
	}
	must(t, env, "endpoint", "delete", "bad")
	must(t, env, "endpoint", "list")
}
