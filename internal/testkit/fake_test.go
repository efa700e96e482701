package testkit_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/testkit"
)

func consume(t *testing.T, c *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var recs []*kgo.Record
	for len(recs) < n {
		fs := c.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records: %v", len(recs), n, ctx.Err())
		}
		recs = append(recs, fs.Records()...)
	}
	return recs
}

func TestFakeSurvivesAnOutageOnTheSamePort(t *testing.T) {
	f := testkit.NewFake(t, testkit.WithDataDir(""), testkit.WithTopics(testkit.Topic{Name: "orders", Partitions: 2}))
	var produces atomic.Int64
	f.Observe(int16(kmsg.Produce), func(kmsg.Request) { produces.Add(1) })
	c := f.Client(kgo.ConsumeTopics("orders"))
	old := time.Now().Add(-400 * 24 * time.Hour) // beyond any retention
	testkit.Produce(t, c, &kgo.Record{Topic: "orders", Value: []byte("before"), Timestamp: old})
	consume(t, c, 1)

	brokers := f.Brokers()
	f.Stop()
	if conn, err := net.Dial("tcp", brokers[0]); err == nil {
		_ = conn.Close()
		t.Error("a stopped broker accepts connections")
	}
	f.Restart()
	f.Cluster().ApplyRetention()
	if f.Brokers()[0] != brokers[0] {
		t.Errorf("address moved from %v to %v", brokers, f.Brokers())
	}
	testkit.Produce(t, c, &kgo.Record{Topic: "orders", Value: []byte("after")})
	consume(t, c, 1)
	fresh := f.Client(kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if got := consume(t, fresh, 2); len(got) != 2 {
		t.Errorf("%d records after the restart", len(got))
	}
	if produces.Load() < 2 {
		t.Errorf("observed %d produce requests, want one before and one after the restart", produces.Load())
	}
}
