package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
)

func TestExplainSaysWhyNothingIsSent(t *testing.T) {
	env := registered(t)
	receiver := testkit.NewReceiver(t)
	receiver.Script("/down", testkit.Status(500))
	receiver.Script("/busy", testkit.Always(testkit.Answer{Status: 429, Header: http.Header{"Retry-After": {"600"}}}))
	receiver.Script("/refuses", testkit.Status(401))
	for _, id := range []string{"down", "busy", "refuses", "well", "off"} {
		must(t, env, "endpoint", "create", "--id", id, "--url", receiver.URL("/"+id))
	}
	must(t, env, "endpoint", "disable", "off", "--reason", "asked for")
	if out := must(t, env, "endpoint", "explain", "well"); !strings.Contains(out, "no process owns its partition") || !strings.Contains(out, "owned by nobody") {
		t.Errorf("%s", out)
	}
	handWritten(t, env, "odd", `{"id":"odd","url":"http://127.0.0.1:1/","event_types":["never"],"state":"enabled","version":1,"timeout":"100h"}`)
	if out := must(t, env, "endpoint", "explain", "odd"); !strings.Contains(out, "says what registration refuses: timeout: \"100h0m0s\" is refused") || !strings.Contains(out, "1m0s counts") {
		t.Errorf("%s", out)
	}
	ctx, stop := context.WithCancel(t.Context())
	code := make(chan int)
	go func() {
		p := &program{in: strings.NewReader(""), out: io.Discard, err: io.Discard, environ: env}
		code <- p.run(ctx, []string{"serve", "--http-addr", "127.0.0.1:0", "--initial-offset", "earliest"})
	}()
	for id, n := range map[string]string{"down": "20", "busy": "3", "refuses": "1", "well": "1"} {
		must(t, env, "send", "--endpoint", id, "--data", "{}", "--count", n)
	}
	explains := func(id string, parts ...string) {
		t.Helper()
		testkit.Eventually(t, time.Minute, func() string {
			out := must(t, env, "endpoint", "explain", id)
			for _, part := range parts {
				if !strings.Contains(out, part) {
					return out + "\nlacks " + part
				}
			}
			return ""
		})
	}
	explains("down", "its breaker is open until", "on hold", "failing since", "status 500", "owned by", "last attempts:", "500")
	explains("busy", "paused until", "it answered 429")
	explains("refuses", "401, the signature is probably not accepted")
	explains("well", "nothing stands in the way", "owned by")
	explains("off", "disabled by its configuration", "asked for")
	utc := regexp.MustCompile(`since \d{4}-\d\d-\d\dT[0-9:]{8}Z`) // people read the times of their zone
	if out := must(t, env, "endpoint", "explain", "down"); utc.MatchString(out) {
		t.Errorf("%s", out)
	}
	if out := must(t, env, "endpoint", "explain", "down", "--json"); !strings.Contains(out, `"why":[`) || !strings.Contains(out, `"open_until"`) || !utc.MatchString(out) {
		t.Errorf("%s", out)
	}
	out := must(t, env, "endpoint", "list", "--failing")
	if !strings.Contains(out, "down  http") || !strings.Contains(out, "busy  http") || strings.Contains(out, "well  http") {
		t.Errorf("%s", out)
	}
	stop()
	if c := <-code; c != exitDone {
		t.Errorf("exit %d", c)
	}
	// Also when every process is dead.
	explains("down", "no process owns its partition", "failing since")
}

func TestExplainKnowsWhatLagKnowsOfThePartition(t *testing.T) {
	fake, env := cluster(t)
	bury(t, fake, "shop")
	ago := time.Now().Add(-5 * time.Minute)
	for range 2 {
		testkit.Produce(t, fake.Client(), &kgo.Record{Topic: "webhooks.deliveries", Key: []byte("shop"), Value: []byte("{}"), Timestamp: ago})
	}
	if out := must(t, env, "endpoint", "explain", "shop"); !strings.Contains(out, "\n  its partition is behind by 2 records, 5m0") {
		t.Errorf("%s", out)
	}
	if out := must(t, env, "endpoint", "explain", "shop", "--json"); !strings.Contains(out, `"unfinished":2`) {
		t.Errorf("%s", out)
	}
}

func TestTheFileThatIsReadIsSaidOnce(t *testing.T) {
	env := registered(t)
	must(t, env, "endpoint", "create", "--id", "shop", "--url", "http://127.0.0.1:3000/")
	brokers, _ := strings.CutPrefix(env[0], "MILENA_KAFKA_BROKERS=")
	if err := errors.Join(os.Mkdir(".milena", 0o700), os.WriteFile(".milena/milena.yaml", []byte("kafka:\n  brokers: ["+brokers+"]\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"explain shop", "list --failing", "get shop"} {
		res := run(t, "", env[1:], append([]string{"endpoint"}, strings.Fields(args)...)...)
		if res.code != exitDone || strings.Count(res.err, "using .milena/milena.yaml") != 1 {
			t.Errorf("%s: %+v", args, res)
		}
	}
}

func TestExplainNamesTheKeyThatASecretWasSealedWith(t *testing.T) {
	env := registered(t)
	receiver := testkit.NewReceiver(t)
	must(t, env, "endpoint", "create", "--id", "good", "--url", receiver.URL("/good"))
	entry, err := registry.GenerateKey("test") // of the same id, and another
	if err != nil {
		t.Fatal(err)
	}
	other, err := registry.ParseKeyRing(entry)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := other.Seal("odd", "whsec_"+strings.Repeat("A", 32))
	if err != nil {
		t.Fatal(err)
	}
	handWritten(t, env, "odd", fmt.Sprintf(`{"id":"odd","url":%q,"event_types":["*"],"state":"enabled","version":1,"secrets":[{"sealed":%q,"created_at":"2026-01-01T00:00:00Z"}]}`,
		receiver.URL("/odd"), sealed))
	remedy := []string{`sealed with key "test" for endpoint odd does not open`, "milena endpoint rotate-secret odd --overlap 0s"}
	says := func(out string, parts ...string) string {
		for _, part := range parts {
			if !strings.Contains(out, part) {
				return out + "\nlacks " + part
			}
		}
		return ""
	}
	if lacks := says(must(t, env, "endpoint", "explain", "odd"), append(remedy, "by the key ring of this command")...); lacks != "" {
		t.Error(lacks)
	}
	ctx, stop := context.WithCancel(t.Context())
	code := make(chan int)
	go func() {
		p := &program{in: strings.NewReader(""), out: io.Discard, err: io.Discard, environ: env}
		code <- p.run(ctx, []string{"serve", "--http-addr", "127.0.0.1:0", "--initial-offset", "earliest"})
	}()
	must(t, env, "send", "--endpoint", "odd", "--data", "{}")
	testkit.Eventually(t, time.Minute, func() string { // as the process saw it: this command has no key ring
		return says(must(t, env[:1], "endpoint", "explain", "odd"), append(remedy, "no request could be made")...)
	})
	must(t, env, "endpoint", "rotate-secret", "odd", "--overlap", "0s")
	must(t, env, "send", "--endpoint", "odd", "--data", "{}")
	testkit.Eventually(t, time.Minute, func() string {
		return says(must(t, env, "attempts", "--endpoint", "odd"), "delivered")
	})
	stop()
	if c := <-code; c != exitDone {
		t.Errorf("exit %d", c)
	}
}
