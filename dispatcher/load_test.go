package dispatcher

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// load is a world for many records: it counts what is written and keeps none of it.
type load struct {
	t      *testing.T
	d      *Dispatcher
	p      *Partition
	topics HoldLog
	halt   func() // ends it as it is

	mu        sync.Mutex
	endpoints map[string]*Endpoint
	answer    func(id string, r *http.Request) (*http.Response, error)
	sees      func(id string, offset int, late time.Duration) // each POST; late since it was handed over
	schedule  func(d *schemas.Delivery, now time.Time) (time.Time, schemas.Reason)
	final     func(code int) bool
	open      map[string]int
	most      map[string]int // of requests at once
	letters   map[schemas.Reason]int
	notices   []schemas.NoticeKind
	settled   map[int64]bool // offsets that are done; nil: not noted
	barrier   error
	born      time.Time // of the records that are sent; zero: now

	posts, delivered, logged, parked, held, done atomic.Int64
	offset                                       int64
}

// newLoad makes a process that owns partition 0; it is wound up with the bubble's test.
func newLoad(t *testing.T, cfg Config, topics HoldLog) *load {
	t.Helper()
	w := &load{
		t: t, topics: topics, endpoints: map[string]*Endpoint{}, open: map[string]int{}, most: map[string]int{},
		letters: map[schemas.Reason]int{},
		answer:  func(string, *http.Request) (*http.Response, error) { return status(200), nil },
		schedule: func(_ *schemas.Delivery, now time.Time) (time.Time, schemas.Reason) {
			return now.Add(time.Minute), ""
		},
		final: func(int) bool { return false },
	}
	w.d = New(cfg, Deps{
		Transport: w, Classify: func(error) schemas.ErrorClass { return schemas.ClassConnect },
		Endpoints: w, Placement: w, Parker: w, DeadLetters: w, AttemptLog: w, Forwarder: w, Notifier: w, HoldLog: topics,
		Hooks: Hooks{Held: func(HoldCause) { w.held.Add(1) }},
	})
	return w
}

// begin takes the partition over and runs the dispatcher until end, which is called
// with the test at the latest.
func (w *load) begin() {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.p = w.d.Assign(ctx, 0, w)
	ended := make(chan struct{})
	go func() { defer close(ended); w.d.Run(ctx) }()
	w.halt = func() { cancel(); <-ended }
	w.t.Cleanup(func() {
		if ctx.Err() == nil { // it was not halted
			w.d.BeginShutdown(time.Second)
			w.p.Drain(context.WithoutCancel(ctx))
		}
		w.halt()
	})
}

func (w *load) endpoint(id string, change ...func(*Endpoint)) {
	u, _ := url.Parse("http://" + id + ".test/" + id)
	ep := &Endpoint{ID: id, State: schemas.StateEnabled, Version: 1, URL: u, Signer: w, Schedule: w}
	for _, f := range change {
		f(ep)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endpoints[id] = ep
}

// send hands the partition one record for each id, in that order; it blocks as Take does.
func (w *load) send(ids ...string) {
	recs := make([]schemas.Record, len(ids))
	for i, id := range ids {
		recs[i] = w.record(w.offset, id)
		w.offset++
	}
	w.p.Take(w.t.Context(), recs)
}

// record is one whose body is its offset and its time.
func (w *load) record(offset int64, id string) schemas.Record {
	now := time.Now()
	if !w.born.IsZero() {
		now = w.born
	}
	return schemas.Record{
		Topic: "webhooks.deliveries", Offset: offset, Timestamp: now, Key: []byte(id),
		Value: []byte(strconv.FormatInt(offset, 10) + " " + strconv.FormatInt(now.UnixNano(), 10)),
	}
}

func (w *load) Send(r *http.Request, connected *atomic.Int64) (*http.Response, error) {
	connected.Store(time.Now().UnixNano())
	id := strings.TrimPrefix(r.URL.Path, "/")
	body, _ := io.ReadAll(r.Body)
	number, at, _ := strings.Cut(string(body), " ")
	offset, _ := strconv.Atoi(number)
	ns, _ := strconv.ParseInt(at, 10, 64)
	w.posts.Add(1)
	w.mu.Lock()
	w.open[id]++
	w.most[id] = max(w.most[id], w.open[id])
	if w.sees != nil {
		w.sees(id, offset, time.Since(time.Unix(0, ns)))
	}
	answer := w.answer
	w.mu.Unlock()
	defer func() { w.mu.Lock(); w.open[id]--; w.mu.Unlock() }()
	return answer(id, r)
}

func (w *load) Sign(http.Header, string, time.Time, []byte) error { return nil }
func (w *load) Final(code int) bool                               { return w.final(code) }

func (w *load) Next(d *schemas.Delivery, now time.Time, _ time.Duration) (time.Time, schemas.Reason) {
	return w.schedule(d, now)
}

func (w *load) Endpoint(id string, _ *Endpoint) *Endpoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.endpoints[id]
}

func (w *load) Barrier(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.barrier
}

func (w *load) PartitionOf(string) int32 { return 0 }

func (w *load) Park(_ *schemas.Delivery, acked func()) { w.parked.Add(1); go acked() }

func (w *load) Bury(l *schemas.Letter, acked func()) {
	w.mu.Lock()
	w.letters[l.Reason]++
	w.mu.Unlock()
	go acked()
}

func (w *load) LogAttempt(a *schemas.Attempt, acked func()) {
	w.logged.Add(1)
	if a.Outcome == schemas.OutcomeDelivered {
		w.delivered.Add(1)
	}
	go acked()
}

func (w *load) Forward(_ *schemas.Delivery, acked func()) { go acked() }

func (w *load) Notify(n *schemas.Notice, acked func()) {
	w.mu.Lock()
	w.notices = append(w.notices, n.Kind)
	w.mu.Unlock()
	go acked()
}

func (w *load) DoneHere(offset int64)      { w.Done(offset) }
func (w *load) GiveUp(int64)               {}
func (w *load) Owned() bool                { return true }
func (w *load) FrozenSince(time.Time) bool { return false }

func (w *load) Done(offset int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done.Add(1)
	if w.settled != nil {
		w.settled[offset] = true
	}
}

// answers changes what the receivers do.
func (w *load) answers(f func(id string, r *http.Request) (*http.Response, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}

// after answers 200 when so much time has passed.
func after(d time.Duration) func(string, *http.Request) (*http.Response, error) {
	return func(_ string, r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(d):
			return status(200), nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// buried counts dead letters of all reasons.
func (w *load) buried() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range maps.Values(w.letters) {
		n += c
	}
	return n
}

// atSize is the published size of a soak test where the budget allows for it (a tenth of
// it takes a tenth of the time), else a tenth of it.
func atSize(t *testing.T, size int, takes time.Duration) int {
	t.Helper()
	if testkit.SoakBudget(t) >= takes {
		return size
	}
	return size / 10
}

func percentile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))]
}

// await lets virtual time pass until met, or fails after most.
func await(t *testing.T, most time.Duration, what string, met func() bool) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(time.Second) {
		synctest.Wait()
		if met() {
			return
		}
		if time.Since(begun) > most {
			t.Fatalf("%s: not within %s", what, most)
		}
	}
}
