package dispatcher

import (
	"flag"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	chaosSeed = flag.Uint64("chaos.seed", 0, "the one seed of the chaos test to run; 0: several")
	chaosLong = flag.Bool("chaos.trace", false, "print all that happened in a run of the chaos test that failed")
	chaosRuns = flag.Uint64("chaos.runs", 4, "how many seeds the chaos test runs")
)

// TestNothingIsLostStuckOrRepeatedWhateverHappens runs processes on logs in memory
// while they die, lose their partitions and get them back, and receivers fail in
// every way.
func TestNothingIsLostStuckOrRepeatedWhateverHappens(t *testing.T) {
	from, to := uint64(1), *chaosRuns+1
	if *chaosSeed != 0 {
		from, to = *chaosSeed, *chaosSeed+1
	}
	failed := 0
	for seed := from; seed < to && failed < 12; seed++ {
		synctest.Test(t, func(bubble *testing.T) {
			w := newChaos(bubble, seed)
			w.run()
			if len(w.faults) > 0 {
				failed++
				t.Errorf("seed %d: %d faults, the first: %s", seed, len(w.faults), w.faults[0])
				if *chaosLong {
					for _, line := range w.trace {
						t.Log(line)
					}
				}
			}
		})
	}
}

func (w *chaos) run() {
	procs := []*chaosProc{w.startProc(), w.startProc()}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { w.commits(stop) })
	w.balance(procs)
	for range 60 + w.roll(60) {
		time.Sleep(time.Duration(w.roll(1500)) * time.Millisecond)
		procs = w.trouble(procs)
	}
	w.calmDown()
	w.balance(procs)
	w.await(procs)
	close(stop)
	wg.Wait()
	for _, p := range procs {
		p.d.BeginShutdown(time.Minute)
		var ends sync.WaitGroup
		for _, a := range p.assignments() {
			ends.Go(func() { a.end(30 * time.Second) })
		}
		ends.Wait()
		p.cancel()
		<-p.ended
	}
	time.Sleep(time.Minute) // for the last writes
}

func (w *chaos) commits(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(250 * time.Millisecond):
		}
		for _, l := range w.logs {
			w.mu.Lock()
			owner := l.owner
			w.mu.Unlock()
			if owner != nil {
				owner.commit()
			}
		}
	}
}

// balance gives partitions without an owner to someone.
func (w *chaos) balance(procs []*chaosProc) {
	for part := range int32(len(w.logs)) { //nolint:gosec // two
		w.mu.Lock()
		owned := w.logs[part].owner != nil
		w.mu.Unlock()
		if !owned {
			w.assign(procs[w.roll(len(procs))], part)
		}
	}
}

// trouble is one thing that happens.
func (w *chaos) trouble(procs []*chaosProc) []*chaosProc {
	ids := []string{"e0", "e1", "e2", "e3", "e4", "e5"}
	id := ids[w.roll(len(ids))]
	n := w.roll(100)
	if w.clean && n >= 80 {
		n = []int{85, 99}[n%2] // a partition moves, or a process ends, and all is waited for
	}
	switch {
	case n < 50:
		w.produce(id, 1+w.roll(15))
	case n < 75:
		w.mu.Lock()
		w.modes[id] = mode(w.rand.IntN(int(modes)))
		if w.rand.IntN(3) == 0 {
			w.modes[id] = modeWell
		}
		w.noteLocked("%s: mode %d", id, w.modes[id])
		w.mu.Unlock()
	case n < 80:
		w.mu.Lock()
		changed := *w.endpoints[id]
		changed.Version++
		w.endpoints[id] = &changed
		w.noteLocked("%s is changed", id)
		w.mu.Unlock()
	case n < 85: // a process dies
		i := w.roll(len(procs))
		procs[i].die()
		procs[i] = w.startProc()
	case n < 91: // a partition moves
		if a := w.ownerOf(int32(w.roll(2))); a != nil { //nolint:gosec // two
			a.end(w.patience())
		}
	case n < 94: // a partition is lost
		if a := w.ownerOf(int32(w.roll(2))); a != nil { //nolint:gosec // two
			w.note("p%d loses partition %d", a.proc.n, a.part)
			a.end(0)
		}
	case n < 97:
		w.cutOff(procs)
	default: // a clean shutdown
		i := w.roll(len(procs))
		w.note("p%d shuts down", procs[i].n)
		procs[i].d.BeginShutdown(time.Minute)
		var ends sync.WaitGroup
		for _, a := range procs[i].assignments() {
			ends.Go(func() { a.end(2 * w.patience()) })
		}
		ends.Wait()
		procs[i].cancel()
		<-procs[i].ended
		procs[i] = w.startProc()
	}
	w.balance(procs)
	return procs
}

// patience is how long a drain may take.
func (w *chaos) patience() time.Duration {
	if w.clean {
		return time.Minute
	}
	return 5 * time.Second
}

func (w *chaos) ownerOf(part int32) *chaosAssignment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logs[part].owner
}

// cutOff keeps a process from the coordinator until others own its partitions; then
// it hears of it.
func (w *chaos) cutOff(procs []*chaosProc) {
	p := procs[w.roll(len(procs))]
	old := p.assignments()
	w.note("p%d is cut off", p.n)
	p.cut.Store(true)
	time.Sleep(time.Duration(w.roll(3000)) * time.Millisecond)
	w.mu.Lock()
	for _, a := range old {
		w.logs[a.part].owner = nil
	}
	w.mu.Unlock()
	var others []*chaosProc
	for _, o := range procs {
		if o != p {
			others = append(others, o)
		}
	}
	w.balance(others)
	time.Sleep(time.Duration(w.roll(5000)) * time.Millisecond)
	for _, a := range old {
		a.gone.Store(true)
		a.end(0)
	}
	p.cut.Store(false)
	w.note("p%d is back", p.n)
}

func (w *chaos) calmDown() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calm = true
	clear(w.modes)
	for id, ep := range w.endpoints { // whatever was switched off is enabled
		changed := *ep
		changed.Version++
		w.endpoints[id] = &changed
	}
	w.noteLocked("calm")
}

// await waits until all is delivered, and checks what is left.
func (w *chaos) await(procs []*chaosProc) {
	for range 120 {
		time.Sleep(time.Minute)
		if w.undelivered() == 0 {
			break
		}
	}
	time.Sleep(2 * time.Hour)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for part, l := range w.logs {
		for _, rec := range l.deliveries {
			if !w.delivered[string(rec.Value)] {
				w.fault("%s was not delivered", rec.Value)
			}
		}
		if l.committed != int64(len(l.deliveries)) {
			w.fault("partition %d: %d of %d are committed", part, l.committed, len(l.deliveries))
		}
		for id, h := range l.health {
			w.fault("health still speaks of %s: %+v", id, h)
		}
	}
	for _, id := range []string{"e0", "e2", "e4"} {
		if got := w.first[id]; !slices.IsSorted(got) {
			w.fault("%s: first POSTs out of order: %v", id, got)
		}
	}
	for _, p := range procs {
		w.checkEmpty(p)
	}
}

func (w *chaos) undelivered() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.logs {
		for _, rec := range l.deliveries {
			if !w.delivered[string(rec.Value)] {
				n++
			}
		}
	}
	return n
}

// checkEmpty finds work that is counted and is not there.
func (w *chaos) checkEmpty(p *chaosProc) {
	s := p.d.lanes
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight != 0 || s.unproven != 0 || s.queued != 0 || s.bytes != 0 {
		w.fault("process %d: in flight %d, unproven %d, queued %d, bytes %d at rest", p.n, s.inFlight, s.unproven, s.queued, s.bytes)
	}
	for _, a := range p.current {
		if a.p != nil && (a.p.queued != 0 || a.p.open != 0 || a.p.unacked != 0 || len(a.p.held) != 0) {
			w.fault("process %d partition %d: queued %d, open %d, unacked %d, held lanes %d at rest", p.n, a.part, a.p.queued, a.p.open, a.p.unacked, len(a.p.held))
		}
	}
	now := time.Now()
	s.evict(now)
	if len(s.byID) > w.cfg.IdleLanes {
		w.fault("process %d keeps %d lanes at rest, %d of them idle", p.n, len(s.byID), s.idle.Len())
		for id, l := range s.byID {
			w.noteLocked("lane %s: working %v free %v stands %v dirty %v writing %v held %v undecided %v place %d episode %v breaker %s", id, l.working(), l.free(now),
				l.telling.stands, l.telling.dirty, l.telling.writing, l.held != nil, l.undecided, l.place, l.episode.active(), l.breaker.state(now))
		}
	}
}
