package retrytopics

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// toy is a Kafka of a few maps, for virtual time: logs, one group's commits, and
// writes that take a while to land and to be acknowledged. What it leaves out (the
// protocol) is tested against the embedded broker.
type toy struct {
	t     testing.TB
	mu    sync.Mutex
	rng   *rand.Rand
	logs  map[topicPartition]*toyLog
	heard func(m kafka.Message) // records of deliveries, as they land
	most  time.Duration         // longest time for a write to land, and again to be acknowledged
	tiers atomic.Int64          // tier writes that landed
}

type topicPartition struct {
	topic     string
	partition int32
}

type toyLog struct {
	recs []schemas.Record
	done map[int64]bool // facts that the group has committed
	more chan struct{}  // closed when a record lands, and made anew
}

func newToy(t testing.TB, seed uint64) *toy {
	return &toy{t: t, rng: rand.New(rand.NewPCG(seed, 1)), logs: map[topicPartition]*toyLog{}, most: 20 * time.Millisecond}
}

func (k *toy) log(tp topicPartition) *toyLog {
	l := k.logs[tp]
	if l == nil {
		l = &toyLog{done: map[int64]bool{}, more: make(chan struct{})}
		k.logs[tp] = l
	}
	return l
}

// create makes the partitions of the tiers, so that they can be assigned.
func (k *toy) create(tiers Tiers, partitions int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, tier := range tiers {
		for p := range partitions {
			k.log(topicPartition{names.Retry(tier), p})
		}
	}
}

var names = schemas.Names{Prefix: schemas.DefaultPrefix}

// toyWriter is a process's writer. A dead one lands nothing and acknowledges nothing.
type toyWriter struct {
	k    *toy
	dead atomic.Bool
}

func (w *toyWriter) Write(m kafka.Message, done func(kafka.Written)) {
	w.k.mu.Lock()
	land, ack := w.k.delay(), w.k.delay()
	w.k.mu.Unlock()
	time.AfterFunc(land, func() {
		if w.dead.Load() {
			return
		}
		offset := w.k.land(m)
		time.AfterFunc(ack, func() {
			if !w.dead.Load() {
				done(kafka.Written{Offset: offset})
			}
		})
	})
}

func (k *toy) delay() time.Duration {
	if k.most == 0 {
		return 0
	}
	return time.Duration(k.rng.Int64N(int64(k.most)))
}

func (k *toy) land(m kafka.Message) int64 {
	k.mu.Lock()
	l := k.log(topicPartition{m.Topic, m.Partition})
	rec := recordOf(m, int64(len(l.recs)))
	rec.Timestamp = time.Now()
	l.recs = append(l.recs, rec)
	close(l.more)
	l.more = make(chan struct{})
	k.mu.Unlock()
	if m.Topic == names.Deliveries() {
		k.heard(m)
	} else {
		k.tiers.Add(1)
	}
	return rec.Offset
}

// toyAssignment is one span of ownership: it reads what is not done and hands it
// over, as internal/consume does.
type toyAssignment struct {
	k      *toy
	l      *toyLog
	mu     sync.Mutex
	facts  map[int64]bool
	given  map[int64]int // answers per record
	cancel context.CancelFunc
	ended  chan struct{}
	span   *span
	taken  atomic.Int64
}

func (a *toyAssignment) Done(offset int64)   { a.answer(offset, true) }
func (a *toyAssignment) GiveUp(offset int64) { a.answer(offset, false) }

func (a *toyAssignment) answer(offset int64, done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if done {
		a.facts[offset] = true
	}
	if a.given[offset]++; a.given[offset] > 1 {
		a.k.t.Errorf("offset %d was answered twice", offset)
	}
}

// own starts an assignment of tp for r.
func (k *toy) own(r *Releaser, tp topicPartition) *toyAssignment {
	k.mu.Lock()
	l := k.log(tp)
	batch := 1 + k.rng.IntN(20)
	k.mu.Unlock()
	ctx, cancel := context.WithCancel(k.t.Context())
	a := &toyAssignment{k: k, l: l, facts: map[int64]bool{}, given: map[int64]int{}, cancel: cancel, ended: make(chan struct{})}
	a.span = r.start(a, tp.topic)
	go func() {
		defer close(a.ended)
		for next := 0; ctx.Err() == nil; {
			k.mu.Lock()
			more := l.more
			var recs []schemas.Record
			for ; next < len(l.recs) && len(recs) < batch; next++ {
				if !l.done[int64(next)] {
					recs = append(recs, l.recs[next])
				}
			}
			k.mu.Unlock()
			if len(recs) > 0 {
				a.taken.Add(int64(len(recs)))
				a.span.Take(ctx, recs)
				continue
			}
			select {
			case <-more:
			case <-ctx.Done():
			}
		}
	}()
	return a
}

// revoke ends an assignment in good order: drain, then commit.
func (a *toyAssignment) revoke() {
	a.cancel()
	<-a.ended
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	a.span.Drain(ctx)
	a.commit()
}

func (a *toyAssignment) commit() {
	a.mu.Lock()
	facts := a.facts
	a.facts = map[int64]bool{}
	a.mu.Unlock()
	a.k.mu.Lock()
	for offset := range facts {
		a.l.done[offset] = true
	}
	a.k.mu.Unlock()
}

// process is a releaser with a clock of its own.
type process struct {
	k       *toy
	w       *toyWriter
	r       *Releaser
	ahead   atomic.Int64 // of its wall clock, against the virtual time
	stop    context.CancelFunc
	stopped chan struct{}
	owned   map[topicPartition]*toyAssignment
}

func (k *toy) startProcess(tiers Tiers, change func(*ReleaserConfig)) *process {
	p := &process{k: k, w: &toyWriter{k: k}, owned: map[topicPartition]*toyAssignment{}, stopped: make(chan struct{})}
	wall := func() time.Time { return time.Now().Add(time.Duration(p.ahead.Load())) }
	dead := &letters{}
	parker, err := NewParker(ParkerConfig{Writer: p.w, DeadLetter: dead, Tiers: tiers, Partitions: toyPartitions, Now: wall})
	if err != nil {
		k.t.Fatal(err)
	}
	cfg := ReleaserConfig{Writer: p.w, Parker: parker, DeadLetter: dead, DeliveriesPartitions: 4, Now: wall, Logger: slog.New(slog.DiscardHandler)}
	cfg.Kafka.Names, cfg.Kafka.Brokers = names, []string{"localhost:9092"} // never dialled: toy hands records over
	if change != nil {
		change(&cfg)
	}
	if p.r, err = NewReleaser(cfg); err != nil {
		k.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(k.t.Context())
	p.stop = stop
	go func() { defer close(p.stopped); p.r.background(ctx) }()
	return p
}

const toyPartitions = 2

// partitions lists the tier partitions that exist.
func (k *toy) partitions() []topicPartition {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []topicPartition
	for tp := range k.logs {
		if tp.topic != names.Deliveries() {
			out = append(out, tp)
		}
	}
	slices.SortFunc(out, func(a, b topicPartition) int {
		if a.topic != b.topic {
			return slices.Compare([]byte(a.topic), []byte(b.topic))
		}
		return int(a.partition - b.partition)
	})
	return out
}

// ownAll gives p every partition that exists.
func (p *process) ownAll() {
	for _, tp := range p.k.partitions() {
		if p.owned[tp] == nil {
			p.owned[tp] = p.k.own(p.r, tp)
		}
	}
}

func (p *process) commit() {
	for _, a := range p.owned {
		a.commit()
	}
}

// shutdown ends a process in good order.
func (p *process) shutdown() {
	for _, a := range p.owned {
		a.revoke()
	}
	p.stop()
	<-p.stopped
	p.w.dead.Store(true)
}

// kill ends a process as kill -9 does: nothing lands, nothing is committed any more.
func (p *process) kill() {
	p.w.dead.Store(true)
	p.stop()
	for _, a := range p.owned {
		a.cancel()
		<-a.ended
	}
	<-p.stopped
}
