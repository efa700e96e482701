package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestWhoInterruptsASearchIsToldHowFarItCame(t *testing.T) {
	fake, env := cluster(t)
	bury(t, fake, "shop-1", "{}")
	value, err := json.Marshal(schemas.Attempt{DeliveryID: "webhooks.deliveries-00000000-0-0.one", EndpointID: "one", Number: 1, Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Produce(t, fake.Client(), &kgo.Record{Topic: "webhooks.attempts", Partition: kafka.Partition([]byte("one"), 12), Key: []byte("one"), Value: value})
	for _, c := range []struct{ args, want string }{
		{"attempts", "milena: interrupted, so this is only a part: 0 of 1 records were searched\n"},
		{"dlq list", "milena: interrupted, so this is only a part: "},
		{"dlq show e-1", "milena: the reading was ended early: interrupted\n"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan struct{})
		// The broker answers no fetch after the interruption: the search cannot have ended.
		fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			interrupt()
			<-ended
			return nil, nil, false
		})
		var said bytes.Buffer
		p := &program{in: strings.NewReader(""), out: &said, err: &said, environ: env}
		code := p.run(ctx, strings.Fields(c.args))
		close(ended)
		if text := said.String(); code != exitFailed || !strings.Contains(text, c.want) || !strings.Contains(text, "interrupted") || strings.Contains(text, "context canceled") {
			t.Errorf("milena %s: exit %d, %s", c.args, code, text)
		}
	}
}
