package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// unsteady is a network that can be cut.
type unsteady struct {
	mu    sync.Mutex
	down  bool
	conns map[net.Conn]struct{}
}

func (u *unsteady) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down { // what kgo takes for a fault of the network is told by its type
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ENETUNREACH)}
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		u.conns[c] = struct{}{}
	}
	return c, err
}

func (u *unsteady) set(down bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.down = down
	if down {
		for c := range u.conns {
			_ = c.Close()
		}
		clear(u.conns)
	}
}

// Refusals of all kinds, and a network that is cut now and then: every record lands
// where its callback says. It lands once, unless both meet: a request whose answer
// was lost is sent again and refused outright, and nobody knows of the first.
func TestEveryRecordLandsThroughAnyMixOfFaults(t *testing.T) {
	passing := []*kerr.Error{kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.KafkaStorageError}
	// not MessageTooLarge, which would be believed of a record that is sent alone
	outright := []*kerr.Error{kerr.TopicAuthorizationFailed, kerr.InvalidRecord, kerr.PolicyViolation, kerr.UnknownTopicOrPartition}
	for _, c := range []struct {
		name     string
		refusals []*kerr.Error
		cuts     bool
		once     bool
	}{
		{"refusals", slices.Concat(passing, outright), false, true},
		{"cuts and passing refusals", passing, true, true},
		{"cuts and refusals", slices.Concat(passing, outright), true, false},
	} {
		t.Run(c.name, func(t *testing.T) { throughFaults(t, c.refusals, c.cuts, c.once) })
	}
}

func throughFaults(t *testing.T, refusals []*kerr.Error, cuts, once bool) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	const partitions, n = 3, 3000
	c := newCluster(t, kfake.SeedTopics(partitions, "t"))
	for _, e := range refusals {
		for p := range int32(partitions) {
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{p}, Err: e, Count: -1,
				When: func(kmsg.Request) bool { return rnd.Float64() < 0.02 }}) // called by one goroutine of the broker
		}
	}
	network := &unsteady{conns: map[net.Conn]struct{}{}}
	cfg := configFor(c)
	cfg.Dialer = network.dial
	w := newWriter(t, cfg, fastRetry())
	res := newResults()
	for i := range n {
		w.Write(Message{Topic: "t", Partition: int32(i % partitions), Value: fmt.Append(nil, i)}, res.of(fmt.Sprint(i)))
		if i%20 == 19 {
			network.set(cuts && i%500 == 499)
			_ = w.Flush(within(t, time.Millisecond)) // lets batches go, so that many requests are refused
			network.set(false)
		}
	}
	got := res.wait(t, n)
	landed, extra := 0, 0
	ends, err := newReader(t, configFor(c)).Ends(within(t, time.Minute), "t")
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(partitions) {
		for _, r := range readAll(t, configFor(c), "t", p, int(ends[p])) {
			if told := got[string(r.Value)]; told == (Written{Offset: r.Offset}) {
				landed++
			} else {
				extra++
			}
		}
	}
	if landed != n || once && extra > 0 {
		t.Fatalf("%d of %d records are where they were said to be, and %d besides", landed, n, extra)
	}
}

func TestWritesWaitForABrokerThatIsAway(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "t"))
	network := &unsteady{conns: map[net.Conn]struct{}{}}
	cfg := configFor(c)
	cfg.Dialer = network.dial
	w := newWriter(t, cfg, WithStallAfter(20*time.Millisecond))
	first := newResults()
	w.Write(Message{Topic: "t", Value: []byte("first")}, first.of("first"))
	first.wait(t, 1)
	network.set(true)
	res := newResults()
	for i := range 100 {
		w.Write(Message{Topic: "t", Value: fmt.Append(nil, i)}, res.of(fmt.Sprint(i)))
	}
	before := time.Now()
	eventually(t, "blocked", func() bool { return !w.BlockedSince().IsZero() })
	if since := w.BlockedSince(); since.After(before) {
		t.Errorf("blocked since %v, but the writes were handed in before %v", since, before)
	}
	network.set(false)
	for name, r := range res.wait(t, 100) {
		if want := fmt.Sprint(r.Offset - 1); r.Err != nil || name != want {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// What the client remembers of a topic from metadata must not outlive the fault.
func TestARightThatIsGivenLaterIsEnough(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "t"))
	f := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.TopicAuthorizationFailed, Count: -1})
	w := newWriter(t, configFor(c), fastRetry())
	res := newResults()
	w.Write(Message{Topic: "t", Value: []byte("x")}, res.of("x"))
	eventually(t, "blocked", func() bool { return !w.BlockedSince().IsZero() })
	f.Remove()
	if r := res.wait(t, 1)["x"]; r.Err != nil {
		t.Fatal(r.Err)
	}
}
