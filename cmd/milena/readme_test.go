package main

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/testkit"
)

// produceAsTheReadmeDoes is the README's example; the test compares them.
func produceAsTheReadmeDoes(ctx context.Context, body []byte, broker string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ProducerBatchMaxBytes(1<<20+32<<10)) // for payloads of 1 MiB
	if err != nil {
		return err
	}
	defer client.Close()
	r := &kgo.Record{Topic: "webhooks.deliveries", Key: []byte("acme"), Value: body, Headers: []kgo.RecordHeader{
		{Key: "ce_id", Value: []byte("order-4711-paid")}, {Key: "ce_source", Value: []byte("/orders")}, {Key: "ce_type", Value: []byte("order.paid")}}}
	err = client.ProduceSync(ctx, r).FirstErr()
	return err
}

func TestTheReadmesProducerSendsAMebibyte(t *testing.T) {
	_, example, _ := strings.Cut(string(readRoot(t, "README.md")), "```go\n// Go (franz-go; acks=all is its default)\n")
	example, _, _ = strings.Cut(example, "```")
	source := string(readRoot(t, "cmd/milena/readme_test.go"))
	if strings.Count(example, "\n") != 4 {
		t.Errorf("the example is another one:\n%s", example)
	}
	for line := range strings.Lines(strings.ReplaceAll(example, `"kafka:9092"`, "broker")) {
		if !strings.Contains(source, "\t"+strings.TrimSpace(line)+"\n") {
			t.Errorf("this test does not run %q", line)
		}
	}
	env := registered(t)
	broker, _ := strings.CutPrefix(env[0], "MILENA_KAFKA_BROKERS=")
	receiver := testkit.NewReceiver(t)
	must(t, env, "endpoint", "create", "--id", "acme", "--url", receiver.URL("/hook"))
	ctx, stop := context.WithCancel(t.Context())
	code := make(chan int)
	go func() {
		p := &program{in: strings.NewReader(""), out: io.Discard, err: os.Stderr, environ: env}
		code <- p.run(ctx, []string{"serve", "--http-addr", "127.0.0.1:0", "--initial-offset", "earliest", "--log-level", "error"})
	}()
	body := make([]byte, 1<<20)
	_, _ = rand.Read(body) // nothing is gained by compression
	if err := produceAsTheReadmeDoes(ctx, body, broker); err != nil {
		t.Fatal(err)
	}
	receiver.WaitFor(t, 1, time.Minute)
	larger := slices.Concat(body, make([]byte, 32<<10))
	if err := produceAsTheReadmeDoes(ctx, larger, broker); !errors.Is(err, kerr.MessageTooLarge) {
		t.Errorf("more than the topic takes: %v", err)
	}
	stop()
	if c := <-code; c != exitDone {
		t.Errorf("exit %d", c)
	}
}
