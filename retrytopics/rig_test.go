package retrytopics

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

// answers is an assignment that remembers what it was told.
type answers struct {
	mu            sync.Mutex
	done, givenUp []int64
}

func (a *answers) Done(offset int64) {
	a.mu.Lock()
	a.done = append(a.done, offset)
	a.mu.Unlock()
}

func (a *answers) GiveUp(offset int64) {
	a.mu.Lock()
	a.givenUp = append(a.givenUp, offset)
	a.mu.Unlock()
}

func (a *answers) got() (done, givenUp []int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(slices.Values(a.done)), slices.Sorted(slices.Values(a.givenUp))
}

// rig is a releaser without a broker: what it writes is in w.
type rig struct {
	t     *testing.T
	r     *Releaser
	w     *logWriter
	dead  *letters
	ahead atomic.Int64 // of the wall clock
	stop  func()
}

func newRig(t *testing.T, change func(*ReleaserConfig)) *rig {
	g := &rig{t: t, w: &logWriter{}, dead: &letters{}}
	wall := func() time.Time { return time.Now().Add(time.Duration(g.ahead.Load())) }
	cfg := ReleaserConfig{Writer: g.w, DeadLetter: g.dead, DeliveriesPartitions: 4, Now: wall,
		Parker: newTestParker(t, g.w, g.dead, wall, nil), Logger: slog.New(slog.DiscardHandler)}
	cfg.Kafka.Names, cfg.Kafka.Brokers = names, []string{"localhost:9092"}
	if change != nil {
		change(&cfg)
	}
	var err error
	if g.r, err = NewReleaser(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); g.r.background(ctx) }()
	g.stop = func() { cancel(); <-ended }
	return g
}

// parked is a record of a tier, parked now by a mover with a good clock.
func parked(offset int64, tier, notBefore time.Duration) schemas.Record {
	d := delivery("ep_"+strconv.FormatInt(offset, 10), offset)
	now := time.Now()
	d.NotBefore, d.HopUntil = ceilMilli(now.Add(notBefore)), now.Add(tier)
	return schemas.Record{Topic: names.Retry(tier), TopicID: [16]byte{1}, Offset: offset, Timestamp: now,
		Key: []byte(d.EndpointID), Value: d.Payload, Headers: d.Headers()}
}

// take hands records over as the loop would. The function ends the assignment, the
// channel closes when Take has returned.
func (g *rig) take(tier time.Duration, recs ...schemas.Record) (*span, *answers, func(), chan struct{}) {
	a := &answers{}
	s := g.r.start(a, names.Retry(tier))
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan struct{})
	go func() { defer close(end); s.Take(ctx, recs) }()
	return s, a, cancel, end
}

// topics counts what was written, by topic.
func (g *rig) topics() map[string]int {
	out := map[string]int{}
	for _, m := range g.w.written() {
		out[m.Topic]++
	}
	return out
}

func (g *rig) wantTopics(when string, want map[string]int) {
	g.t.Helper()
	synctest.Wait()
	got := g.topics()
	if len(got) != len(want) {
		g.t.Errorf("%s: wrote %v, want %v", when, got, want)
		return
	}
	for topic, n := range want {
		if got[topic] != n {
			g.t.Errorf("%s: wrote %v, want %v", when, got, want)
			return
		}
	}
}
