package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/milena-project/milena/schemas"
)

// eventually waits for something that another goroutine brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(100 * time.Second) // a machine may be slow
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("not within 100 s: " + what)
		}
	}
}

func fastRetry() WriterOption { return WithRetry(5*time.Millisecond, 20*time.Millisecond) }

// A topic with a smaller limit than the client's batches: every batch is refused.
func TestOnlyTheRecordThatIsTooLargeIsRefused(t *testing.T) {
	for name, codec := range map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression()} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			limit := "20000"
			if err := c.CreateTopic("webhooks.dlq", 1, map[string]string{"max.message.bytes": limit}); err != nil {
				t.Fatal(err)
			}
			w := newWriter(t, configFor(c), WithCompression(codec), fastRetry())
			// Refused for a while, so that all are on their way when the first batch goes.
			f := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
			const n = 500
			res := newResults()
			for i := range n {
				v := fmt.Appendf(nil, "%05d", i)
				size := 1000
				if i == 123 || i == 400 {
					size = 30000
				}
				w.Write(Message{Topic: "webhooks.dlq", Value: append(v, noise(i, size)...)}, res.of(string(v)))
			}
			f.Remove()
			got := res.wait(t, n)
			for name, r := range got {
				big := name == "00123" || name == "00400"
				if big != errors.Is(r.Err, ErrTooLarge) || !big && r.Err != nil {
					t.Errorf("%s: %v", name, r.Err)
				}
			}
			for _, r := range readAll(t, configFor(c), "webhooks.dlq", 0, n-2) {
				if name := string(r.Value[:5]); got[name].Offset != r.Offset {
					t.Fatalf("%s is at %d, told %d", name, r.Offset, got[name].Offset)
				}
			}
		})
	}
}

// noise does not compress.
func noise(seed, n int) []byte {
	out := make([]byte, 0, n+4)
	x := uint32(seed)*2654435761 + 1
	for len(out) < n {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		out = append(out, byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
	}
	return out[:n]
}

func TestARefusingBrokerOnlyDelays(t *testing.T) {
	for _, e := range []*kerr.Error{kerr.NotEnoughReplicas, kerr.TopicAuthorizationFailed, kerr.InvalidRecord,
		kerr.PolicyViolation, kerr.CorruptMessage, kerr.UnknownServerError, kerr.NotEnoughReplicasAfterAppend} {
		t.Run(e.Message, func(t *testing.T) {
			c := newCluster(t, kfake.SeedTopics(2, "webhooks.hold"))
			said := new(logged)
			cfg := configFor(c)
			cfg.Logger = slog.New(slog.NewTextHandler(said, nil))
			w := newWriter(t, cfg, fastRetry(), WithStallAfter(100*time.Millisecond), WithLinger(50*time.Millisecond))
			f := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "webhooks.hold", Partitions: []int32{1}, Err: e, Count: -1})
			const n = 100
			res := newResults()
			for i := range n {
				w.Write(Message{Topic: "webhooks.hold", Partition: 1, Value: fmt.Appendf(nil, "%05d", i)}, res.of(fmt.Sprint(i)))
			}
			eventually(t, "blocked", func() bool { return !w.BlockedSince().IsZero() })
			other := newResults()
			w.Write(Message{Topic: "webhooks.hold", Partition: 0, Value: []byte("x")}, other.of("x"))
			other.wait(t, 1) // one stalled partition does not stall the others
			eventually(t, "a line that names the topic", func() bool { return len(said.lines("not acknowledged")) > 0 })
			f.Remove()
			for name, r := range res.wait(t, n) {
				if r.Err != nil {
					t.Errorf("%s: %v", name, r.Err)
				}
			}
			if !w.BlockedSince().IsZero() {
				t.Error("still blocked after all landed")
			}
			if lines := said.lines("not acknowledged"); len(lines) != 1 || !bytes.Contains([]byte(lines[0]), []byte("topic=webhooks.hold partition=1")) {
				t.Errorf("said %q", lines)
			}
			if e == kerr.NotEnoughReplicasAfterAppend {
				return // appended each time it refused; only the idempotent broker could tell
			}
			prev := ""
			for _, r := range readAll(t, configFor(c), "webhooks.hold", 1, n) {
				if string(r.Value) <= prev {
					t.Fatalf("%q after %q", r.Value, prev)
				}
				prev = string(r.Value)
			}
		})
	}
}

func TestWritesToATopicThatIsNotThereWaitForIt(t *testing.T) {
	c := newCluster(t)
	w := newWriter(t, configFor(c), fastRetry(), WithStallAfter(10*time.Millisecond))
	res := newResults()
	for i := range 10 {
		w.Write(Message{Topic: "late", Partition: 2, Value: fmt.Append(nil, i)}, res.of(fmt.Sprint(i)))
	}
	eventually(t, "blocked", func() bool { return !w.BlockedSince().IsZero() })
	if err := c.CreateTopic("late", 1, nil); err != nil {
		t.Fatal(err)
	}
	// Still one partition too few: partition 2 does not exist.
	if err := w.Flush(within(t, 300*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("flush: %v", err)
	}
	if err := c.DeleteTopic("late"); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateTopic("late", 3, nil); err != nil {
		t.Fatal(err)
	}
	for name, r := range res.wait(t, 10) {
		if r.Err != nil {
			t.Errorf("%s: %v", name, r.Err)
		}
	}
	for i, r := range readAll(t, configFor(c), "late", 2, 10) {
		if string(r.Value) != fmt.Sprint(i) {
			t.Errorf("%d: %q", i, r.Value)
		}
	}
}

func TestWritesGoOnAfterTheirTopicWasRecreated(t *testing.T) {
	for _, v := range []struct {
		name string
		opts []kfake.Opt
	}{{"topic ids", nil}, {"topic names", []kfake.Opt{kfake.MaxVersions(kversion.V3_7_0())}}} {
		t.Run(v.name, func(t *testing.T) {
			c := newCluster(t, append(v.opts, kfake.SeedTopics(1, "t"))...)
			w := newWriter(t, configFor(c), fastRetry())
			write := func(from, to int) {
				res := newResults()
				for i := from; i < to; i++ {
					w.Write(Message{Topic: "t", Value: fmt.Append(nil, i)}, res.of(fmt.Sprint(i)))
				}
				for name, r := range res.wait(t, to-from) {
					if r.Err != nil {
						t.Fatalf("%s: %v", name, r.Err)
					}
				}
			}
			write(0, 10)
			if err := c.DeleteTopic("t"); err != nil {
				t.Fatal(err)
			}
			if err := c.CreateTopic("t", 1, nil); err != nil {
				t.Fatal(err)
			}
			write(10, 20)
			readAll(t, configFor(c), "t", 0, 10)
		})
	}
}

// Brokers before 2.8 refuse a producer id without IdempotentWrite on the cluster;
// the client remembers that for ever.
func TestWriterOutlivesARefusedProducerID(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "t"))
	w := newWriter(t, configFor(c), fastRetry())
	f := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, TopLevel: true, Count: -1})
	res := newResults()
	w.Write(Message{Topic: "t", Value: []byte("x")}, res.of("x"))
	eventually(t, "blocked", func() bool { return !w.BlockedSince().IsZero() })
	f.Remove()
	if r := res.wait(t, 1)["x"]; r.Err != nil {
		t.Fatal(r.Err)
	}
}

// Each look at such a client has to tell it: until one does, no write lands.
func TestAProducerIDThatFailedForGoodIsSeenAtTheFirstLook(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c := newCluster(t, kfake.SeedTopics(1, "t"))
	cl, err := configFor(c).NewClient()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	if producerIDFailed(cl) {
		t.Error("failed, says a client that was never refused")
	}
	refused, err := configFor(c).NewClient()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(refused.Close)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, TopLevel: true, Count: -1})
	if err := refused.ProduceSync(within(t, time.Minute), &kgo.Record{Topic: "t"}).FirstErr(); !errors.Is(err, kerr.ClusterAuthorizationFailed) {
		t.Fatal(err)
	}
	for i := range 20 {
		if !producerIDFailed(refused) {
			t.Fatalf("look %d did not see it", i+1)
		}
	}
}

// A request that the broker swallows stands for a client that has none on its way:
// nothing comes of either, and the leader answers others.
func TestWritesThatTheClientHasLostSightOfAreSentAgain(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(2, "t"))
	said := &logged{}
	network := &unsteady{conns: map[net.Conn]struct{}{}}
	cfg := configFor(c)
	cfg.Dialer, cfg.Logger = network.dial, slog.New(slog.NewTextHandler(said, nil))
	w := newWriter(t, cfg, fastRetry(), WithStallAfter(5*time.Millisecond), withStuckAfter(30*time.Millisecond))
	res := newResults()
	w.Write(Message{Topic: "t", Value: []byte("before")}, res.of("before"))
	res.wait(t, 1)
	away := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Count: -1})
	swallowed := make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(swallowed)
		return nil, nil, true
	})
	w.Write(Message{Topic: "t", Value: []byte("x")}, res.of("x"))
	<-swallowed
	w.Write(Message{Topic: "t", Value: []byte("behind")}, res.of("behind"))
	eventually(t, "looks at the leader", func() bool { return away.Hits() >= 5 })
	if lines := said.lines("sending them again"); len(lines) > 0 {
		t.Fatalf("its leader gave no answer either, yet: %q", lines)
	}
	away.Remove()
	eventually(t, "a line that says so", func() bool { return len(said.lines("sending them again")) > 0 })
	network.set(true) // the connection on which the broker owes an answer takes no other
	network.set(false)
	for name, r := range res.wait(t, 2) {
		if r.Err != nil {
			t.Errorf("%s: %v", name, r.Err)
		}
	}
	if lines := said.lines("sending them again"); len(lines) != 1 || !strings.Contains(lines[0], "topic=t partition=0") {
		t.Errorf("said %q", lines)
	}
}

// To be sent again is no error, and not the reason for which nothing lands.
func TestTooFewReplicasAreNotToldAsWritesThatTheClientDropped(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "t"))
	said := &logged{}
	cfg := configFor(c)
	cfg.Logger = slog.New(slog.NewTextHandler(said, nil))
	w := newWriter(t, cfg, fastRetry(), WithStallAfter(5*time.Millisecond), withStuckAfter(30*time.Millisecond))
	res := newResults()
	f := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Err: kerr.NotEnoughReplicas, Count: -1})
	for _, name := range []string{"a", "b", "c"} {
		w.Write(Message{Topic: "t", Value: []byte(name)}, res.of(name))
	}
	eventually(t, "sent again, one at a time", func() bool {
		s := w.stream("t", 0)
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.mending && s.sent == 1
	})
	if err := w.Blocked(); err == nil || !strings.Contains(err.Error(), "t/0 gives no answer") {
		t.Errorf("blocked: %v", err)
	}
	f.Remove()
	res.wait(t, 3)
	if lines := said.lines("sending them again"); len(lines) != 1 {
		t.Errorf("said %q", lines)
	}
}

func TestCloseFailsWhatDidNotLandInTime(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(2, "t"))
	w := newWriter(t, configFor(c), fastRetry())
	res := newResults()
	w.Write(Message{Topic: "t", Partition: 0, Value: []byte("lands")}, res.of("lands"))
	res.wait(t, 1)
	f := c.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{0}, Err: kerr.InvalidRecord, Count: -1},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{1}, Err: kerr.NotEnoughReplicas, Count: -1})
	defer f.Remove()
	for p := range int32(2) {
		for i := range 50 {
			w.Write(Message{Topic: "t", Partition: p, Value: []byte("x")}, res.of(fmt.Sprint(p, i)))
		}
	}
	w.Write(Message{Topic: "unknown", Value: []byte("x")}, res.of("unknown"))
	err := w.Close(within(t, 50*time.Millisecond))
	if err == nil {
		t.Error("Close said nothing of 101 writes")
	}
	w.Write(Message{Topic: "t", Value: []byte("late")}, res.of("late"))
	got := res.wait(t, 102)
	for name, r := range got {
		if want := name != "lands"; want != errors.Is(r.Err, ErrClosed) {
			t.Errorf("%s: %v", name, r.Err)
		}
	}
	if w.Outstanding() != 0 {
		t.Errorf("%d outstanding after Close", w.Outstanding())
	}
	if again := w.Close(context.Background()); !errors.Is(again, err) {
		t.Errorf("second Close: %v", again)
	}
}

func TestCloseWaitsForWhatLands(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "t"))
	w := newWriter(t, configFor(c), WithLinger(50*time.Millisecond))
	res := newResults()
	for i := range 100 {
		w.Write(Message{Topic: "t", Value: []byte("x"), Headers: []schemas.Header{{Key: "a"}}}, res.of(fmt.Sprint(i)))
	}
	if err := w.Close(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	for name, r := range res.wait(t, 100) {
		if r.Err != nil {
			t.Errorf("%s: %v", name, r.Err)
		}
	}
}

func TestDoneMayWrite(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "t"))
	w := newWriter(t, configFor(c))
	end := make(chan struct{})
	left := 100
	var next func(Written)
	next = func(Written) {
		if left--; left == 0 {
			close(end)
			return
		}
		w.Write(Message{Topic: "t", Value: []byte("x")}, next)
	}
	w.Write(Message{Topic: "t", Value: []byte("x")}, next)
	select {
	case <-end:
	case <-within(t, time.Minute).Done():
		t.Fatal("stuck")
	}
}
