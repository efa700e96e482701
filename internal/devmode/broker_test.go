package devmode

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func startBroker(t *testing.T, dir string) *Broker {
	t.Helper()
	b, err := StartBroker(dir, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDataOfTheEmbeddedBrokerIsContinued(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	b := startBroker(t, dir)
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	// Older than any retention: it must stay.
	old := &kgo.Record{Value: []byte("kept"), Timestamp: time.Now().Add(-1000 * time.Hour)}
	if err := cl.ProduceSync(ctx, old).FirstErr(); err != nil {
		t.Fatal(err)
	}
	cl.Close()
	b.cluster.ApplyRetention()
	b.Close()

	b = startBroker(t, dir)
	defer b.Close()
	cl, err = kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if recs := cl.PollFetches(ctx).Records(); len(recs) != 1 || string(recs[0].Value) != "kept" {
		t.Fatalf("%d records after the restart", len(recs))
	}
}

func TestASecondProcessIsRefusedWithOneClearSentence(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, dir)
	_, err := StartBroker(dir, "127.0.0.1:0")
	if err == nil || !strings.Contains(err.Error(), "is in use by process") || !strings.Contains(err.Error(), "--data-dir") {
		t.Fatal(err)
	}
	b.Close()
	startBroker(t, dir).Close()
}

func TestATakenPortAndAnUnwritableDirectoryAreSaidClearly(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dir := t.TempDir()
	_, err = StartBroker(dir, ln.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "in use by another program; give another address with --kafka-addr") {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("the failed start left %v %v", left, err)
	}
	startBroker(t, dir).Close()
	if _, err = StartBroker(dir, ln.Addr().String()); err == nil || !strings.Contains(err.Error(), "in use by another program") {
		t.Error(err)
	}
	startBroker(t, dir).Close() // the failed start gave its lock back

	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = StartBroker(filepath.Join(file, "sub"), "127.0.0.1:0"); err == nil || !strings.Contains(err.Error(), "data directory") {
		t.Error(err)
	}
}
