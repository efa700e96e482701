package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/signer/verify"
)

func TestServeRefusesBeforeAnythingIsTouched(t *testing.T) {
	inDir(t)
	fake := testkit.NewFake(t)
	brokers := "MILENA_KAFKA_BROKERS=" + fake.Brokers()[0]
	key, err := registry.GenerateKey("k")
	if err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		env  []string
		args string
		want string
	}{
		{nil, "", "there is no default"},
		{[]string{brokers}, "", "MILENA_KEYRING"},
		{[]string{brokers, "MILENA_KEYRING=nonsense"}, "", "keyring = \"********\" (environment MILENA_KEYRING)"},
		{[]string{brokers, "MILENA_KEYRING=" + key}, "--http-addr 127.0.0.1:0", "`milena topics apply` makes topics and mends settings, `milena topics plan` shows how:\n  - 18 topics are missing: webhooks.deliveries, webhooks.hold, webhooks.retry.0s and 15 others\n"},
		{[]string{brokers, "MILENA_KEYRING=" + key}, "--http-addr " + taken.Addr().String(), "address already in use"},
	} {
		res := run(t, "", c.env, append([]string{"serve"}, strings.Fields(c.args)...)...)
		if res.code != exitUsage || !strings.Contains(res.err, c.want) || strings.Contains(res.err, key) {
			t.Errorf("serve %s with %v: %+v, want %q", c.args, c.env, res, c.want)
		}
	}
}

func TestServeDeliversWhatSendWrote(t *testing.T) {
	env := registered(t)
	type post struct {
		header http.Header
		body   []byte
	}
	posts := make(chan post, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		posts <- post{r.Header.Clone(), body}
	}))
	defer srv.Close()
	var made struct {
		NewSecrets []registry.NewSecret `json:"new_secrets"`
	}
	if err := json.Unmarshal([]byte(must(t, env, "endpoint", "create", "--id", "shop", "--url", srv.URL, "--json")), &made); err != nil {
		t.Fatal(err)
	}
	must(t, env, "send", "--type", "order.created", "--data", `{"z":1, "a":2}`, "--canonical")

	ctx, stop := context.WithCancel(t.Context())
	code := make(chan int)
	var log bytes.Buffer
	go func() {
		p := &program{in: strings.NewReader(""), out: io.Discard, err: &log, environ: env}
		code <- p.run(ctx, []string{"serve", "--http-addr", "127.0.0.1:0", "--initial-offset", "earliest", "--log-successes", "--log-format", "json"})
	}()
	got := <-posts
	v, err := verify.New(verify.Config{Secrets: []string{made.NewSecrets[0].Secret}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(got.header, got.body); err != nil || string(got.body) != `{"a":2,"z":1}` {
		t.Errorf("%v %s", err, got.body)
	}
	stop()
	if c := <-code; c != exitDone {
		t.Errorf("exit %d\n%s", c, log.String())
	}
	if !strings.Contains(log.String(), `"msg":"attempt","outcome":"delivered","endpoint_id":"shop"`) || strings.Contains(log.String(), made.NewSecrets[0].Secret) {
		t.Errorf("%s", log.String())
	}
	if out := must(t, env, "attempts", "--endpoint", "shop"); !strings.Contains(out, "delivered") {
		t.Errorf("%s", out)
	}
}
