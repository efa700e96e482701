package dispatcher

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

// interleaved is a hold partition with so many records for each of its endpoints, one
// after another in turn, as a previous owner left it. It makes them when they are read.
type interleaved struct {
	endpoints, each int
	ids             []string
	keys            [][]byte
	payload         []byte
	spread          time.Duration // over which their breakers' times end
	read            atomic.Int64  // bytes
}

func newInterleaved(endpoints, each int, spread time.Duration) *interleaved {
	h := &interleaved{endpoints: endpoints, each: each, spread: spread, payload: make([]byte, 1024)}
	for i := range endpoints {
		h.ids = append(h.ids, "e"+strconv.Itoa(i))
		h.keys = append(h.keys, []byte(h.ids[i]))
	}
	copy(h.payload, "0 0 ")
	return h
}

func (h *interleaved) end() int64 { return int64(h.endpoints * h.each) }

func (h *interleaved) TakeOver(context.Context, int32, func() bool) (Takeover, error) {
	health := map[string]schemas.Health{}
	now := time.Now()
	for i, id := range h.ids {
		next, last := int64(i), h.end()-int64(h.endpoints)+int64(i)
		until := now.Add(time.Second + h.spread*time.Duration(i)/time.Duration(h.endpoints))
		health[id] = schemas.Health{Next: &next, Last: &last, Held: h.each, Since: &schemas.Episode{
			FailingSince: now, Attempts: 7, BreakerStep: 1, OpenUntil: until,
		}}
	}
	return Takeover{Claims: []schemas.Claim{{HoldEnd: h.end()}}, Health: health}, nil
}

func (h *interleaved) ReadHold(_ context.Context, _ int32, from int64, limit int) (HoldChunk, error) {
	const size = 1024 + 200
	n := min(int64(max(1, limit/size)), h.end()-from)
	c := HoldChunk{Records: make([]schemas.Record, max(0, n)), Next: from + n, Bytes: int(n) * size}
	now := time.Now()
	for i := range c.Records {
		offset := from + int64(i)
		c.Records[i] = schemas.Record{
			Topic: "webhooks.hold", Offset: offset, Timestamp: now, Key: h.keys[int(offset)%h.endpoints], Value: h.payload,
		}
	}
	h.read.Add(int64(c.Bytes))
	return c, nil
}

func (h *interleaved) Append(_ int32, _ int64, _ *schemas.Delivery, acked func(int64)) {
	panic("nothing is held here")
}

func (h *interleaved) WriteHealth(_ int32, _ int64, _ string, _ *schemas.Health, acked func()) {
	go acked()
}

func TestEndpointsThatShareAHoldPartitionAllGetTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { recover1000(t, newInterleaved(50, 50, time.Minute)) })
}

func TestSoakAThousandEndpointsWithTenThousandEachOnOneHoldPartition(t *testing.T) {
	n := atSize(t, 1_000, 10*time.Minute)
	each := atSize(t, atSize(t, 10_000, time.Hour), 10*time.Minute)
	for _, spread := range []time.Duration{time.Second, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) { recover1000(t, newInterleaved(n, each, spread)) })
	}
}

// recover1000 lets the endpoints recover one after another; each answers in 20 ms.
func recover1000(t *testing.T, h *interleaved) {
	w := newLoad(t, Config{MaxInFlight: 4096}, h)
	for _, id := range h.ids {
		w.endpoint(id)
	}
	type progress struct {
		first, last, longest time.Duration // since the takeover
		n                    int
	}
	seen := map[string]*progress{}
	begun := time.Now()
	w.sees = func(id string, _ int, _ time.Duration) {
		now := time.Since(begun)
		p := seen[id]
		if p == nil {
			p = &progress{first: now, last: now}
			seen[id] = p
		}
		p.longest = max(p.longest, now-p.last)
		p.last = now
		p.n++
	}
	w.answers(func(id string, r *http.Request) (*http.Response, error) { return after(20*time.Millisecond)(id, r) })
	w.begin()
	all := int64(h.endpoints * h.each)
	await(t, 24*time.Hour, "all delivered", func() bool { return w.delivered.Load() >= all })
	took := time.Since(begun)
	w.mu.Lock()
	defer w.mu.Unlock()
	var waits, pauses, finished []time.Duration
	for i, id := range h.ids {
		p := seen[id]
		if p == nil || p.n != h.each {
			t.Fatalf("%s: %+v, want %d POSTs", id, p, h.each)
		}
		up := time.Second + h.spread*time.Duration(i)/time.Duration(h.endpoints)
		waits = append(waits, p.first-up)
		pauses = append(pauses, p.longest)
		finished = append(finished, p.last-up)
	}
	t.Logf("%d endpoints × %d records, recovering within %s: all delivered in %s (%.0f/s); %.1f bytes read per byte delivered; first delivery after the breaker's time p50 %s, longest %s; longest pause of an endpoint p50 %s, longest %s; done p50 %s, longest %s",
		h.endpoints, h.each, h.spread, took.Round(time.Second), float64(all)/took.Seconds(), float64(h.read.Load())/float64(all)/(1024+200),
		percentile(waits, 0.5), percentile(waits, 1), percentile(pauses, 0.5), percentile(pauses, 1), percentile(finished, 0.5), percentile(finished, 1))
	if longest := percentile(waits, 1); longest > 30*time.Second {
		t.Errorf("an endpoint waited %s for its first delivery", longest)
	}
}
