//go:build kafka

package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/internal/testkit/realkafka"
)

// The backup of docs/operations.md, with a client in the place of the console tools:
// committed records as lines of key|value, written back without anything else.
func TestEndpointsThatAreRestoredSignAsBefore(t *testing.T) {
	c := realkafka.Shared(t)
	s := newSite(t, c.Brokers(), "MILENA_PREFIX=before.")
	made := s.do(s.admin, "endpoint", "create", "--id", "shop", "--url", s.receiver.URL("/shop"))
	for line := range strings.Lines(made) {
		if secret, ok := strings.CutPrefix(line, "secret  "); ok {
			s.receiver.Secrets(t, "/shop", strings.TrimSpace(secret))
		}
	}
	s.do(s.admin, "endpoint", "update", "shop", "--description", "with | and \"quotes\"")

	var backup bytes.Buffer
	reader := testkit.NewClient(t, c.Brokers(), kgo.ConsumeTopics("before.endpoints"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for n := 0; n < 2; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		for _, r := range fetches.Records() {
			n++
			fmt.Fprintf(&backup, "%s|%s\n", r.Key, r.Value)
		}
	}

	// Another installation, as after the loss of the first.
	s.admin = s.at(c.Brokers(), "MILENA_PREFIX=again.")
	s.do(s.admin, "topics", "apply")
	writer := testkit.NewClient(t, c.Brokers())
	for line := range strings.Lines(backup.String()) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "|")
		testkit.Produce(t, writer, &kgo.Record{Topic: "again.endpoints", Key: []byte(key), Value: []byte(value)})
	}
	v := s.serve(s.admin, "--initial-offset", "earliest") // as it says for a new installation
	v.says("ready\n")
	s.do(s.admin, "send", "--endpoint", "shop", "--data", "{}")
	s.received("shop", 1)
	if n := s.receiver.Log.Invalid(); n > 0 {
		t.Error("the signature does not verify with the secret of before")
	}
	s.do(s.admin, "endpoint", "update", "shop", "--description", "changed again")
	v.end()
}
