package bench

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// massEndpoints is how many there are; every other one comes to hang.
const massEndpoints = 9_000

// half is a receiver of which every other endpoint hangs while hanging is set.
type half struct {
	*testkit.CheapReceiver

	seen    delays // of the endpoints that never hang
	hanging atomic.Bool
	hung    atomic.Int64
	release chan struct{}
}

func newHalf(b *testing.B) *half {
	h := &half{release: make(chan struct{})}
	h.CheapReceiver = testkit.NewCheapReceiver(b, h.inspect)
	b.Cleanup(func() { close(h.release) }) // before the receiver's own end, which waits for what hangs
	return h
}

func (h *half) inspect(head []byte) {
	if odd(head) {
		if h.hanging.Load() {
			h.hung.Add(1)
			<-h.release
		}
		return
	}
	if made, ok := stamp(head); ok {
		h.seen.add(time.Since(made))
	}
}

// odd reads the number of the endpoint from the request line POST /ep17 HTTP/1.1.
func odd(head []byte) bool {
	end := bytes.IndexByte(head[5:], ' ')
	return end > 0 && (head[5+end-1]-'0')%2 == 1
}

// take returns what was seen since the last call, as text and in numbers.
func (h *half) take(offered int) (p99 time.Duration, text string) {
	h.seen.mu.Lock()
	defer h.seen.mu.Unlock()
	all := h.seen.all
	h.seen.all = nil
	if len(all) == 0 {
		return 0, "none"
	}
	slices.Sort(all)
	n := len(all)
	return all[n*99/100], fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, longest %.1f ms, %d of %d delivered",
		all[n/2].Seconds()*1000, all[n*99/100].Seconds()*1000, all[n-1].Seconds()*1000, n, offered)
}

// BenchmarkIsolationMassHang has 9,000 endpoints, 2,000 events a second and 7,372 slots:
// both ends of 4,500 connections that hang fit into the open files of one process. The
// dispatcher's soak test has 20,000 in the same proportion. Warm: all have answered when
// every other one begins to hang. Cold: they hang when the process starts.
func BenchmarkIsolationMassHang(b *testing.B) {
	const n, rate, slots = massEndpoints, 2_000, 7_372
	for _, warm := range []bool{true, false} {
		b.Run(map[bool]string{true: "Warm", false: "Cold"}[warm], func(b *testing.B) {
			for b.Loop() {
				in := install(b, testkit.NewFake(b), "mass.")
				h := newHalf(b)
				in.register(n, func(_ int, ep *schemas.Endpoint) { ep.URL = h.URL("/" + ep.ID) })
				in.cfg.Dispatcher.MaxInFlight = slots
				in.cfg.Dispatcher.DrainBudget = time.Second // what hangs is cut off
				writes := countWrites(in.fake, in.names())
				h.hanging.Store(!warm)
				stop := in.run()
				next := 0
				if warm {
					in.tick(rate, n/rate*time.Second+2*time.Second, &next) // each has answered once
					waitQuiet()
					h.take(0)
					offered := in.tick(rate, 10*time.Second, &next)
					waitQuiet()
					p99, text := h.take(offered)
					b.Logf("all are well: %s", text)
					b.ReportMetric(p99.Seconds()*1000, "clean-p99-ms")
				}
				h.hanging.Store(true)
				offered := in.tick(rate, 20*time.Second, &next)
				waitQuiet()
				p99, text := h.take(offered)
				b.Logf("half of them hang (%d requests): %s; records %v", h.hung.Load(), text, writes())
				b.ReportMetric(p99.Seconds()*1000, "dirty-p99-ms")
				stop()
			}
		})
	}
}

// tick produces at a rate for the endpoints in turn, and returns how many events went
// to even ones.
func (in *installation) tick(rate int, span time.Duration, next *int) (even int) {
	body := bytes.Repeat([]byte("x"), payloadSize)
	const step = 10 * time.Millisecond
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	end := time.Now().Add(span)
	for now := range ticker.C {
		if now.After(end) {
			break
		}
		for range rate / int(time.Second/step) {
			i := *next % massEndpoints
			*next++
			if i%2 == 0 {
				even++
			}
			in.produce(in.record(endpointID(i), "good-"+strconv.FormatInt(time.Now().UnixNano(), 10), body))
		}
	}
	check(in.tb, in.cl.Flush(in.tb.Context()))
	return even
}

// BenchmarkIsolationCrowd is 100,000 endpoints that all have a delivery when the
// process starts: the spread of their lateness, and what it takes.
func BenchmarkIsolationCrowd(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		in := install(b, testkit.NewFake(b), "crowd.")
		var began atomic.Int64
		var seen delays
		h := testkit.NewCheapReceiver(b, func([]byte) {
			seen.add(time.Duration(time.Now().UnixNano() - began.Load()))
		})
		in.register(n, func(_ int, ep *schemas.Endpoint) { ep.URL = h.URL("/" + ep.ID) })
		body := bytes.Repeat([]byte("x"), payloadSize)
		for i := range n {
			in.produce(in.record(endpointID(i), strconv.Itoa(i), body))
		}
		check(b, in.cl.Flush(b.Context()))
		writes := countWrites(in.fake, in.names())
		before := residentMiB()
		began.Store(time.Now().UnixNano())
		stop := in.run()
		testkit.Eventually(b, time.Minute, func() string {
			if c := h.Count(); c < n {
				return fmt.Sprintf("%d of %d", c, n)
			}
			return ""
		})
		after := residentMiB()
		stop()
		seen.mu.Lock()
		slices.Sort(seen.all)
		at := func(q float64) time.Duration { return seen.all[int(q*float64(len(seen.all)-1))] - seen.all[0] }
		b.Logf("after the first delivery: p50 %s, p99 %s, last %s; resident %d MiB before, %d MiB after, the broker and all endpoints with them; records %v",
			at(0.5).Round(time.Millisecond), at(0.99).Round(time.Millisecond), at(1).Round(time.Millisecond), before, after, writes())
		b.ReportMetric(at(1).Seconds(), "spread-s")
		seen.mu.Unlock()
	}
}

// residentMiB is this process's resident set; 0 where the system does not say.
func residentMiB() int {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	pages, _ := strconv.Atoi(fields[1])
	return pages * os.Getpagesize() >> 20
}
