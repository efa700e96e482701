package dispatcher

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

// mortal is a process's way to hold and health. It dies at one of its steps, an
// acknowledgement: what was written is durable, and nothing that comes after it
// happens any more.
type mortal struct {
	*memoryHold

	mu    sync.Mutex
	step  int
	dieAt int // 0: only when kill is called
	dead  bool
	died  chan struct{}
}

func newMortal(topics *memoryHold, dieAt int) *mortal {
	return &mortal{memoryHold: topics, dieAt: dieAt, died: make(chan struct{})}
}

func (m *mortal) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dead {
		m.dead = true
		close(m.died)
	}
}

func (m *mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// lives reports whether the process sees this acknowledgement.
func (m *mortal) lives() bool {
	m.mu.Lock()
	m.step++
	last := m.step == m.dieAt
	m.mu.Unlock()
	if last {
		m.kill()
	}
	return !m.isDead()
}

func (m *mortal) Append(p int32, claim int64, d *schemas.Delivery, acked func(int64)) {
	if m.isDead() {
		return
	}
	m.memoryHold.Append(p, claim, d, func(offset int64) {
		if m.lives() {
			acked(offset)
		}
	})
}

func (m *mortal) WriteHealth(p int32, claim int64, id string, h *schemas.Health, acked func()) {
	if m.isDead() {
		return
	}
	m.memoryHold.WriteHealth(p, claim, id, h, func() {
		if m.lives() {
			acked()
		}
	})
}

// succession is one partition's log and the processes that own it one after another.
type succession struct {
	t      *testing.T
	topics *memoryHold
	ids    []string // of the records, by offset
	edit   func(*Endpoint)

	mu        sync.Mutex
	answered  map[int]time.Time // offsets that were answered 200, and when first
	repeats   int               // POSTs of what had been answered
	first     []int             // offsets in the order of their first POST
	seen      map[int]bool
	committed int
}

func newSuccession(t *testing.T, ids []string, edit func(*Endpoint)) *succession {
	return &succession{
		t: t, topics: &memoryHold{health: map[string]schemas.Health{}}, ids: ids, edit: edit, answered: map[int]time.Time{}, seen: map[int]bool{},
	}
}

// own starts a process that takes over what the last one has left.
func (s *succession) own(m *mortal) *load {
	w := newLoad(s.t, Config{}, m)
	w.settled = map[int64]bool{}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(s.ids))) {
		w.endpoint(id, s.edit)
	}
	posted := map[int]bool{}
	w.sees = func(_ string, offset int, _ time.Duration) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if posted[offset] {
			s.t.Errorf("%d was POSTed twice by one process", offset)
		}
		posted[offset] = true
		if _, ok := s.answered[offset]; ok {
			s.repeats++
		}
		if !s.seen[offset] {
			s.seen[offset] = true
			s.first = append(s.first, offset)
		}
	}
	return w
}

// answers lets a process's receivers answer 200 after so long; each is noted.
func (s *succession) answers(w *load, took time.Duration) {
	w.answers(func(id string, r *http.Request) (*http.Response, error) {
		offset, _ := strconv.Atoi(r.Header.Get("Ce-Id")[len("webhooks.deliveries-0-"):])
		resp, err := after(took)(id, r)
		if err == nil {
			s.mu.Lock()
			if _, ok := s.answered[offset]; !ok {
				s.answered[offset] = time.Now()
			}
			s.mu.Unlock()
		}
		return resp, err
	})
}

// feed hands a process the log from the last commit on.
func (s *succession) feed(w *load) {
	w.offset = int64(s.committed)
	if s.committed == 0 {
		w.send(s.ids[0])
		time.Sleep(time.Second) // how long it takes is known by then
	}
	for from := int(w.offset); from < len(s.ids); from += 100 {
		w.send(s.ids[from:min(from+100, len(s.ids))]...)
	}
}

// crash ends a process that has died; what it had done so far was committed.
func (s *succession) crash(w *load, m *mortal) {
	m.kill()
	w.mu.Lock()
	settled := maps.Clone(w.settled)
	w.mu.Unlock()
	for settled[int64(s.committed)] {
		s.committed++
	}
	w.d.lanes.close()
	w.d.cancel(errors.New("crash"))
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	w.p.Drain(gone)
	w.halt()
}

func (s *succession) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.answered) == len(s.ids)
}

func times(n int, id string) []string { return slices.Repeat([]string{id}, n) }

func TestKilledAtAnyStepOfHoldNothingIsLostAndTheOrderIsKept(t *testing.T) {
	const records, took = 80, 100 * time.Millisecond
	most := 0
	for dieAt := 1; ; dieAt++ {
		over := false
		synctest.Test(t, func(t *testing.T) {
			s := newSuccession(t, times(records, "e"), one)
			m := newMortal(s.topics, dieAt)
			w := s.own(m)
			s.answers(w, took)
			w.begin()
			s.feed(w)
			select {
			case <-m.died:
			case <-time.After(time.Minute):
				over = true // all its steps are behind it
			}
			s.crash(w, m)
			m2 := newMortal(s.topics, 0)
			w2 := s.own(m2)
			s.answers(w2, took)
			w2.begin()
			s.feed(w2)
			await(t, time.Minute, "all delivered after a crash at step "+strconv.Itoa(dieAt), s.complete)
			if !slices.IsSorted(s.first) {
				t.Errorf("step %d: first POSTs in the order %v", dieAt, s.first)
			}
			most = max(most, s.repeats)
		})
		if over || t.Failed() {
			t.Logf("%d steps, at most %d repeats", dieAt-1, most)
			break
		}
	}
	// One in flight, and what was completed since health was told last, a second ago.
	if limit := 1 + int(time.Second/took) + 1; most > limit {
		t.Errorf("%d repeats, at most %d are allowed", most, limit)
	}
}

func TestAProcessKilledAfterAProbeThatSucceededLosesNothingOfWhatIsHeld(t *testing.T) {
	for successes := range 4 {
		synctest.Test(t, func(t *testing.T) {
			s := newSuccession(t, times(1_000, "e"), one)
			m := newMortal(s.topics, 0)
			w := s.own(m)
			w.schedule = func(_ *schemas.Delivery, now time.Time) (time.Time, schemas.Reason) { return now.Add(time.Minute), "" }
			w.answers(func(string, *http.Request) (*http.Response, error) { return status(503), nil })
			w.begin()
			s.feed(w)
			time.Sleep(10 * time.Second) // the breaker is open
			parked := int(w.parked.Load())
			s.answers(w, 50*time.Millisecond)
			reached := func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.answered) >= successes }
			for !reached() {
				time.Sleep(time.Millisecond)
			}
			s.crash(w, m)
			m2 := newMortal(s.topics, 0)
			w2 := s.own(m2)
			s.answers(w2, 50*time.Millisecond)
			w2.begin()
			s.feed(w2)
			await(t, 5*time.Minute, "all delivered", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.answered)+parked >= 1_000 })
			if s.repeats > successes+1 {
				t.Errorf("%d repeats after %d successes", s.repeats, successes)
			}
		})
	}
}

func TestAnOwnerWhoseViewOfTheRegistryIsStalledLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSuccession(t, times(200, "e"), one)
		m := newMortal(s.topics, 0)
		w := s.own(m)
		s.answers(w, 100*time.Millisecond)
		w.begin()
		s.feed(w)
		time.Sleep(3 * time.Second) // most of it is on hold
		s.crash(w, m)
		m2 := newMortal(s.topics, 0)
		w2 := s.own(m2)
		s.answers(w2, 100*time.Millisecond)
		ep := w2.endpoints["e"]
		delete(w2.endpoints, "e") // it has not read so far, and cannot ask
		w2.barrier = errors.New("no answer")
		w2.begin()
		s.feed(w2)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if w2.posts.Load() > 0 || w2.buried() > 0 || w2.parked.Load() > 0 {
			t.Errorf("%d POSTs, %d dead letters, %d parked while the registry did not answer", w2.posts.Load(), w2.buried(), w2.parked.Load())
		}
		w2.mu.Lock()
		w2.endpoints["e"], w2.barrier = ep, nil
		w2.mu.Unlock()
		await(t, time.Minute, "all delivered", s.complete)
		if !slices.IsSorted(s.first) || w2.buried() > 0 {
			t.Errorf("order kept: %v; %d dead letters", slices.IsSorted(s.first), w2.buried())
		}
	})
}

func TestKilledWhileAThousandEndpointsDrainRepeatsStayWithinR1(t *testing.T) {
	const endpoints, each, took = 1_000, 4, 200 * time.Millisecond
	ids := make([]string, 0, endpoints*each)
	for range each {
		for i := range endpoints {
			ids = append(ids, "e"+strconv.Itoa(i))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := newSuccession(t, ids, one)
		m := newMortal(s.topics, 0)
		w := s.own(m)
		hanging := make(chan struct{})
		w.answers(func(id string, r *http.Request) (*http.Response, error) {
			select {
			case <-hanging:
				return status(503), nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})
		w.begin()
		w.send(ids[:endpoints]...)
		time.Sleep(6 * time.Second) // so long that what comes now is held
		w.send(ids[endpoints:]...)
		time.Sleep(2 * time.Second)
		if held := w.held.Load(); held < endpoints*(each-1)/2 {
			t.Fatalf("%d were held while all hung", held)
		}
		s.answers(w, took)
		close(hanging)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		killed := time.Now()
		w.mu.Lock()
		inFlight := 0
		for _, n := range w.open {
			inFlight += n
		}
		w.mu.Unlock()
		s.mu.Lock()
		lately := 0
		for _, at := range s.answered {
			if killed.Sub(at) <= tellEvery {
				lately++
			}
		}
		before := len(s.answered)
		s.mu.Unlock()
		parked := int(w.parked.Load())
		s.crash(w, m)
		m2 := newMortal(s.topics, 0)
		w2 := s.own(m2)
		s.answers(w2, took)
		w2.begin()
		s.feed(w2)
		await(t, 5*time.Minute, "all delivered", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.answered)+parked >= len(ids) })
		t.Logf("killed with %d delivered, %d in flight and %d completed within the last second: %d repeats", before, inFlight, lately, s.repeats)
		if s.repeats > inFlight+lately {
			t.Errorf("%d repeats, R1 allows %d", s.repeats, inFlight+lately)
		}
		if before == 0 {
			t.Error("nothing had been delivered by then")
		}
	})
}

// A crash between a parked copy's ack and the commit makes the next owner fail the same
// attempt and park a second copy. Their jitter is the same, so they come due within
// seconds of each other, and the second is known.
func TestTwoCopiesThatACrashMadeComeDueTogetherAndOneIsPosted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := &memoryHold{health: map[string]schemas.Health{}}
		own := func() *world {
			w := newWorldOn(t, Config{}, topics)
			w.endpoint("e")
			w.answers(func(*http.Request) (*http.Response, error) { return status(500), nil })
			w.send("e", 1)
			synctest.Wait()
			return w
		}
		w := own()
		w.crash()
		time.Sleep(3 * time.Second)
		w2 := own() // from the same commit
		copies := append(slices.Clone(w.parked), w2.parked...)
		if len(copies) != 2 || copies[0].ID() != copies[1].ID() || copies[0].Attempt != copies[1].Attempt {
			t.Fatalf("parked %d copies of one attempt, want 2", len(copies))
		}
		w2.answers(func(*http.Request) (*http.Response, error) { return status(200), nil })
		posts := len(w2.posts)
		time.Sleep(time.Minute)
		for _, d := range copies {
			d.Released = time.Now()
			w2.send("e", 1, d.Headers()...)
			time.Sleep(3 * time.Second)
		}
		w2.see(func() {
			if n := len(w2.posts) - posts; n != 1 {
				t.Errorf("%d POSTs of two copies, want 1", n)
			}
		})
	})
}
