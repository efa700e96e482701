package dispatcher

import (
	"context"
	"errors"
	"io"
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

	"go.uber.org/goleak"

	"github.com/milena-project/milena/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is everything that a Dispatcher knows of the outside, in memory.
type world struct {
	t *testing.T
	d *Dispatcher
	p *Partition

	mu        sync.Mutex
	endpoints map[string]*Endpoint
	answer    func(r *http.Request) (*http.Response, error)
	barrier   error
	barriers  int

	posts   []post
	open    map[string]int
	most    map[string]int
	parked  []schemas.Delivery
	letters []schemas.Letter
	logged  []schemas.Attempt
	notices []schemas.Notice
	topics  *memoryHold
	forward []schemas.Delivery
	done    []int64
	givenUp []int64

	crash    func() // ends it without winding anything up
	holdAcks atomic.Bool
	acks     []func() // held back while holdAcks
	owned    atomic.Bool
	frozen   atomic.Bool
	connects atomic.Bool // requests have a connection
	heldDone []int64
	home     int32 // partition of every endpoint
	offset   int64
}

type post struct {
	endpoint, body, attempt string
	at                      time.Time
}

func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	return newWorldOn(t, cfg, &memoryHold{health: map[string]schemas.Health{}})
}

// newWorldOn makes a process that finds hold and health as another has left them.
func newWorldOn(t *testing.T, cfg Config, topics *memoryHold) *world {
	t.Helper()
	return newWorldAt(t, cfg, topics, topics, 0)
}

// newWorldAt has the endpoints in another partition than 0, which it owns, and log in
// place of topics.
func newWorldAt(t *testing.T, cfg Config, topics *memoryHold, log HoldLog, home int32) *world {
	t.Helper()
	w := &world{topics: topics, home: home, t: t, endpoints: map[string]*Endpoint{}, open: map[string]int{}, most: map[string]int{}}
	w.owned.Store(true)
	w.connects.Store(true)
	w.answer = func(*http.Request) (*http.Response, error) { return status(200), nil }
	w.d = New(cfg, Deps{
		Transport: w, Classify: func(error) schemas.ErrorClass { return schemas.ClassConnect },
		Endpoints: w, Placement: w, Parker: w, DeadLetters: w, AttemptLog: w, Forwarder: w,
		Notifier: w, HoldLog: log,
	})
	ctx, cancel := context.WithCancel(t.Context())
	w.p = w.d.Assign(ctx, 0, w)
	ended := make(chan struct{})
	go func() { defer close(ended); w.d.Run(ctx) }()
	w.crash = sync.OnceFunc(func() {
		w.d.cancel(errors.New("crash"))
		drain, stop := context.WithTimeout(context.Background(), 0)
		defer stop()
		w.p.Drain(drain)
		cancel()
		<-ended
	})
	t.Cleanup(func() {
		w.d.BeginShutdown(time.Minute)
		drain, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		w.release()
		w.p.Drain(drain)
		w.crash()
	})
	return w
}

func status(code int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: http.NoBody}
}

func (w *world) endpoint(id string, change ...func(*Endpoint)) {
	u, _ := url.Parse("http://receiver.test/" + id)
	ep := &Endpoint{ID: id, State: schemas.StateEnabled, Version: 1, URL: u, Signer: w, Schedule: w}
	for _, f := range change {
		f(ep)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endpoints[id] = ep
}

// send hands the partition n records for an endpoint; the bodies are their offsets.
func (w *world) send(endpoint string, n int, headers ...schemas.Header) {
	recs := make([]schemas.Record, n)
	for i := range recs {
		recs[i] = schemas.Record{
			Topic: "webhooks.deliveries", Offset: w.offset, Timestamp: time.Now(),
			Key: []byte(endpoint), Value: []byte(strconv.FormatInt(w.offset, 10)), Headers: headers,
		}
		w.offset++
	}
	w.p.Take(w.t.Context(), recs)
}

func (w *world) Send(r *http.Request, connected *atomic.Int64) (*http.Response, error) {
	if w.connects.Load() {
		connected.Store(time.Now().UnixNano())
	}
	id := strings.TrimPrefix(r.URL.Path, "/")
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	w.mu.Lock()
	w.posts = append(w.posts, post{id, string(body), r.Header.Get("Milena-Attempt"), time.Now()})
	w.open[id]++
	w.most[id] = max(w.most[id], w.open[id])
	answer := w.answer
	w.mu.Unlock()
	defer func() { w.mu.Lock(); w.open[id]--; w.mu.Unlock() }()
	return answer(r)
}

func (w *world) Sign(http.Header, string, time.Time, []byte) error { return nil }
func (w *world) Final(code int) bool                               { return code == 400 }

func (w *world) Next(d *schemas.Delivery, now time.Time, after time.Duration) (time.Time, schemas.Reason) {
	switch {
	case d.Attempt >= 3:
		return time.Time{}, schemas.ReasonExhausted
	case !d.Enqueued.IsZero() && now.Sub(d.Enqueued) > 96*time.Hour:
		return time.Time{}, schemas.ReasonExpired
	}
	return now.Add(max(time.Minute, after)), ""
}

func (w *world) Endpoint(id string, _ *Endpoint) *Endpoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.endpoints[id]
}

func (w *world) Barrier(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.barriers++
	return w.barrier
}

func (w *world) PartitionOf(string) int32 { return w.home }

func (w *world) ack(f func()) {
	if w.holdAcks.Load() {
		w.acks = append(w.acks, f)
		return
	}
	go f()
}

// release lets all writes be acknowledged.
func (w *world) release() {
	w.mu.Lock()
	w.holdAcks.Store(false)
	acks := w.acks
	w.acks = nil
	w.mu.Unlock()
	for _, f := range acks {
		f()
	}
}

func (w *world) Park(d *schemas.Delivery, acked func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parked = append(w.parked, *d)
	w.ack(acked)
}

func (w *world) Bury(l *schemas.Letter, acked func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.letters = append(w.letters, *l)
	w.ack(acked)
}

func (w *world) LogAttempt(a *schemas.Attempt, acked func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logged = append(w.logged, *a)
	w.ack(acked)
}

func (w *world) Forward(d *schemas.Delivery, acked func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forward = append(w.forward, *d)
	w.ack(acked)
}

func (w *world) Done(offset int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = append(w.done, offset)
}

func (w *world) DoneHere(offset int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = append(w.done, offset)
	w.heldDone = append(w.heldDone, offset)
}

func (w *world) Notify(n *schemas.Notice, acked func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notices = append(w.notices, *n)
	w.ack(acked)
}

func (w *world) GiveUp(offset int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.givenUp = append(w.givenUp, offset)
}

func (w *world) Owned() bool                  { return w.owned.Load() }
func (w *world) FrozenSince(_ time.Time) bool { return w.frozen.Load() }

// answers changes what the receivers do.
func (w *world) answers(f func(r *http.Request) (*http.Response, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}

// see runs f on a state that does not change meanwhile.
func (w *world) see(f func()) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) bodies(endpoint string) []string {
	var all []string
	for _, p := range w.posts {
		if p.endpoint == endpoint {
			all = append(all, p.body)
		}
	}
	return all
}

// hang never answers before the request's deadline.
func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

var errRefused = errors.New("connection refused")

func sorted(in []int64) []int64 { return slices.Sorted(slices.Values(in)) }
