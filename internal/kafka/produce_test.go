package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/milena-project/milena/schemas"
)

// results gathers what became of writes, by name.
type results struct {
	mu   sync.Mutex
	got  map[string]Written
	left chan struct{}
}

func newResults() *results {
	return &results{got: map[string]Written{}, left: make(chan struct{}, 1<<20)}
}

func (r *results) of(name string) func(Written) {
	return func(w Written) {
		r.mu.Lock()
		if _, twice := r.got[name]; twice {
			w.Err = errors.New("done was called twice")
		}
		r.got[name] = w
		r.mu.Unlock()
		r.left <- struct{}{}
	}
}

func (r *results) wait(t testing.TB, n int) map[string]Written {
	t.Helper()
	timeout := time.After(2 * time.Minute)
	for i := range n {
		select {
		case <-r.left:
		case <-timeout:
			t.Fatalf("%d of %d writes came back", i, n)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got
}

func TestWritesLandInOrderWithTheirOffsets(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(3, "webhooks.hold"))
	w := newWriter(t, configFor(c))
	const n = 5000
	res := newResults()
	for i := range n {
		name := fmt.Sprint(i)
		w.Write(Message{Topic: "webhooks.hold", Partition: 1, Key: []byte("k"), Value: []byte(name),
			Headers: []schemas.Header{{Key: "n", Value: []byte(name)}}}, res.of(name))
	}
	if err := w.Flush(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	got := res.wait(t, n)
	for i, r := range readAll(t, configFor(c), "webhooks.hold", 1, n) {
		if string(r.Value) != fmt.Sprint(i) || r.Offset != int64(i) || got[fmt.Sprint(i)] != (Written{Offset: int64(i)}) ||
			len(r.Headers) != 1 || r.Headers[0].Key != "n" || string(r.Headers[0].Value) != string(r.Value) {
			t.Fatalf("record %d: %q at %d, told %+v", i, r.Value, r.Offset, got[fmt.Sprint(i)])
		}
	}
	if !w.BlockedSince().IsZero() || w.Outstanding() != 0 {
		t.Errorf("blocked since %v, %d outstanding after all landed", w.BlockedSince(), w.Outstanding())
	}
}

func TestTombstoneStaysNil(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "x"))
	w := newWriter(t, configFor(c))
	res := newResults()
	w.Write(Message{Topic: "x", Key: []byte("k")}, res.of("nil"))
	w.Write(Message{Topic: "x", Key: []byte("k"), Value: []byte{}}, res.of("empty"))
	res.wait(t, 2)
	rs := readAll(t, configFor(c), "x", 0, 2)
	if rs[0].Value != nil || rs[1].Value == nil || !bytes.Equal(rs[1].Value, nil) {
		t.Errorf("values %v %v", rs[0].Value, rs[1].Value)
	}
}
