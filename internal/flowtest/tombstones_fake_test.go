//go:build !kafka

package flowtest

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// A letter dies again within a millisecond, and the tombstone of its first death is on
// its way for five seconds: it lands behind the new letter, and must not erase it.
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
	cfg.Dialer = lateTombstones(t, f, 5*time.Second).dial
	slow, err := dlq.Open(cfg)
	must(t, err)
	t.Cleanup(slow.Close)
	rep := f.replay(slow, dlq.Job{}, dlq.Options{})
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
	late := 0
	placed := map[string]int64{}
	for _, rec := range f.read(f.names().DLQ()) {
		id, generation, err := schemas.ParseLetterKey(string(rec.Key))
		must(t, err)
		switch {
		case generation == 1:
			placed[id] = rec.Offset
		case rec.Value == nil && placed[id] > 0:
			late++
		}
	}
	if late == 0 {
		t.Error("no tombstone landed behind the new letter: the race did not take place")
	}
	t.Logf("%d of %d tombstones landed behind the new letter", late, len(letters))
}

// tombstoneDelay delays what a client writes to the topic of dead letters, and all
// that it writes on that connection afterwards.
type tombstoneDelay struct {
	by    time.Duration
	marks [][]byte // name and id of the topic
}

func lateTombstones(t *testing.T, f *flow, by time.Duration) *tombstoneDelay {
	t.Helper()
	topic := f.names().DLQ()
	details, err := kadm.NewClient(f.cluster.fake.Client()).ListTopics(t.Context(), topic)
	must(t, err)
	id := details[topic].ID
	return &tombstoneDelay{by: by, marks: [][]byte{[]byte(topic), id[:]}}
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
	until time.Time     // nothing is written before
	last  chan struct{} // closed when what was written last is out
}

const produceKey = 0

func (c *delayedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if len(b) > 8 && b[4] == 0 && b[5] == produceKey {
		for _, mark := range c.delay.marks {
			if bytes.Contains(b, mark) {
				c.until = now.Add(c.delay.by)
			}
		}
	}
	if c.last == nil && !now.Before(c.until) {
		return c.Conn.Write(b)
	}
	before, out := c.last, make(chan struct{})
	c.last = out
	held := bytes.Clone(b)
	time.AfterFunc(c.until.Sub(now), func() {
		defer close(out)
		if before != nil {
			<-before
		}
		_, _ = c.Conn.Write(held)
	})
	return len(b), nil
}
