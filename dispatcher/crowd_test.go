package dispatcher

import (
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestEveryEndpointOfACrowdGetsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { crowd(t, 1_500, 128) })
}

func TestSoakAHundredThousandEndpointsWithWorkAtOnce(t *testing.T) {
	n := atSize(t, 100_000, 5*time.Minute)
	synctest.Test(t, func(t *testing.T) { crowd(t, n, 4096*n/100_000) })
}

// crowd gives each of n endpoints three records at once; each answers in 20 ms.
func crowd(t *testing.T, n, slots int) {
	const each = 3
	topics := &memoryHold{health: map[string]schemas.Health{}}
	w := newLoad(t, Config{MaxInFlight: slots}, topics)
	w.begin()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = "e" + strconv.Itoa(i)
		w.endpoint(ids[i])
	}
	first := map[string]time.Duration{}
	var all []time.Duration
	w.sees = func(id string, _ int, late time.Duration) {
		if _, ok := first[id]; !ok {
			first[id] = late
		}
		all = append(all, late)
	}
	w.answers(after(20 * time.Millisecond))
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begun := time.Now()
	w.born = begun // all at once, though they are taken in as there is room
	var highest uint64
	for range each {
		for chunk := range slices.Chunk(ids, 1_000) {
			w.send(chunk...)
			runtime.ReadMemStats(&now)
			highest = max(highest, now.HeapAlloc-min(now.HeapAlloc, before.HeapAlloc))
		}
	}
	await(t, time.Hour, "all delivered", func() bool { return w.delivered.Load() == int64(n*each) })
	w.mu.Lock()
	defer w.mu.Unlock()
	var firsts []time.Duration
	for _, id := range ids {
		firsts = append(firsts, first[id])
	}
	ideal := time.Duration(n*each) * 20 * time.Millisecond / time.Duration(slots/2) // unproven ones share half of the slots
	t.Logf("%d endpoints × %d, %d slots: all in %s (%s at half of the slots); first delivery of an endpoint p50 %s, p99 %s, longest %s; all p50 %s, longest %s; heap at most %d MiB (%d bytes an endpoint); %d held",
		n, each, slots, time.Since(begun).Round(time.Second), ideal, percentile(firsts, 0.5), percentile(firsts, 0.99), percentile(firsts, 1),
		percentile(all, 0.5), percentile(all, 1), highest>>20, highest/uint64(n), w.held.Load())
	if longest := percentile(firsts, 1); longest > 2*ideal {
		t.Errorf("an endpoint waited %s for its first delivery", longest)
	}
}

func TestWhenAllEndpointsHangMemoryStaysBoundedAndTheWindowMoves(t *testing.T) {
	const endpoints, bound = 400, 4 << 20
	synctest.Test(t, func(t *testing.T) {
		topics := &memoryHold{health: map[string]schemas.Health{}}
		w := newLoad(t, Config{MaxInFlight: 1024, QueuedBytes: bound}, topics)
		w.begin()
		ids := make([]string, endpoints)
		for i := range ids {
			ids[i] = "e" + strconv.Itoa(i)
			w.endpoint(ids[i])
		}
		w.answers(after(time.Hour))
		var wg sync.WaitGroup
		const rounds = 30
		var took []time.Duration
		var most int64
		var queued int
		wg.Go(func() {
			for range rounds {
				begun := time.Now()
				w.send(ids...)
				took = append(took, time.Since(begun))
				time.Sleep(time.Second)
			}
		})
		for range 120 {
			time.Sleep(time.Second)
			load := w.d.Load()
			most, queued = max(most, load.Bytes), max(queued, load.Queued)
		}
		wg.Wait()
		synctest.Wait()
		t.Logf("%d records: %d held, %d parked, %d done in deliveries; at most %d bytes in %d queued records; the longest wait to hand over %d records was %s",
			endpoints*rounds, w.held.Load(), w.parked.Load(), w.done.Load(), most, queued, endpoints, percentile(took, 1))
		if most > bound+2<<10 {
			t.Errorf("%d bytes are queued, the bound is %d", most, bound)
		}
		if done := w.done.Load(); done < endpoints*rounds*9/10 {
			t.Errorf("%d of %d are done in deliveries: the window does not move", done, endpoints*rounds)
		}
	})
}
