//go:build !kafka

package flowtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// A letter dies again within a millisecond, and the tombstone of its first death is on
// its way for longer: it lands behind the new letter, and must not erase it.
func TestALetterThatDiesAgainAtOnceOutlivesItsTombstone(t *testing.T) {
	f := newFlow(t)
	var ids []string
	for _, id := range []string{"a", "b", "c"} {
		f.endpoint(id, preset("proofledger"))
		f.receiver.Script("/"+id, testkit.Status(422))
		ids = append(ids, id)
	}
	f.ready(f.start())
	letters := f.bury(30, ids...) // fewer of an endpoint than open a breaker
	cfg := f.cfg.KafkaConfig(f.logs)
	late := lateTombstones(t, f)
	cfg.Dialer = late.dial
	slow, err := dlq.Open(cfg)
	must(t, err)
	t.Cleanup(slow.Close)
	plan, err := slow.Plan(t.Context(), dlq.Job{Kind: schemas.RunReplay})
	must(t, err)
	runs, done := f.runs(), make(chan struct{})
	var rep dlq.Report
	go func() {
		defer close(done)
		var err error
		if rep, err = slow.Execute(t.Context(), plan, runs, dlq.Options{}); err != nil {
			t.Error(err)
		}
	}()
	testkit.Eventually(t, 30*time.Second, func() string { // what has been replayed has died again
		written, died := f.endOf(f.names().Deliveries()), f.endOf(f.names().DLQ())-int64(len(letters))
		if written == 0 || died < written {
			return fmt.Sprintf("%d letters are replayed, and %d have died again", written, died)
		}
		return ""
	})
	late.release()
	<-done
	if rep.Settled != int64(len(letters)) {
		t.Errorf("%d letters are settled", rep.Settled)
	}
	f.settled(20 * time.Second)
	again := f.open(f.store(), dlq.Filter{})
	if len(again) != len(letters) {
		t.Errorf("%d letters are there, not %d", len(again), len(letters))
	}
	for i := range letters {
		e, ok := again[schemas.LetterKey(letters[i].ID(), 1)]
		if !ok || e.Reason != schemas.ReasonRejected || e.Generation != 1 {
			t.Errorf("%s has not died again", letters[i].ID())
		}
	}
	if n := f.receiver.Log.Len(); n != len(letters) {
		t.Errorf("%d requests, not %d", n, len(letters))
	}
	behind := 0
	placed := map[string]int64{}
	for _, rec := range f.read(f.names().DLQ()) {
		id, generation, err := schemas.ParseLetterKey(string(rec.Key))
		must(t, err)
		switch {
		case generation == 1:
			placed[id] = rec.Offset
		case rec.Value == nil && placed[id] > 0:
			behind++
		}
	}
	if behind == 0 {
		t.Error("no tombstone landed behind the new letter: the race did not take place")
	}
	t.Logf("%d of %d tombstones landed behind the new letter", behind, len(letters))
}

// tombstoneDelay holds back what a client writes to the topic of dead letters, and all
// that it writes on that connection afterwards, until release is called.
type tombstoneDelay struct {
	release func()
	over    chan struct{}
	marks   [][]byte // name and id of the topic
}

func lateTombstones(t *testing.T, f *flow) *tombstoneDelay {
	t.Helper()
	topic := f.names().DLQ()
	details, err := kadm.NewClient(f.cluster.fake.Client()).ListTopics(t.Context(), topic)
	must(t, err)
	id := details[topic].ID
	d := &tombstoneDelay{over: make(chan struct{}), marks: [][]byte{[]byte(topic), id[:]}}
	d.release = sync.OnceFunc(func() { close(d.over) })
	t.Cleanup(d.release)
	return d
}

func (d *tombstoneDelay) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &delayedConn{Conn: c, delay: d}, nil
}

type delayedConn struct {
	net.Conn

	delay *tombstoneDelay
	mu    sync.Mutex
	last  chan struct{} // closed when what was written last is out; nil: nothing was held back yet
}

const produceKey = 0

// tombstone reports whether b is a request that writes to the topic of dead letters.
func (d *tombstoneDelay) tombstone(b []byte) bool {
	return len(b) > 8 && b[4] == 0 && b[5] == produceKey &&
		slices.ContainsFunc(d.marks, func(mark []byte) bool { return bytes.Contains(b, mark) })
}

func (c *delayedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil && !c.delay.tombstone(b) {
		return c.Conn.Write(b)
	}
	before, out := c.last, make(chan struct{})
	c.last = out
	held := bytes.Clone(b)
	go func() {
		defer close(out)
		<-c.delay.over
		if before != nil {
			<-before
		}
		_, _ = c.Conn.Write(held)
	}()
	return len(b), nil
}
