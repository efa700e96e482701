package router

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/milena-project/milena/internal/consume"
	"github.com/milena-project/milena/schemas"
)

// endpointsOf is a registry that has one list of endpoints for each tenant and type.
type endpointsOf struct {
	mu      sync.Mutex
	match   map[string][]string
	err     error
	asked   int
	matched int
}

func (e *endpointsOf) Barrier(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	return e.err
}

func (e *endpointsOf) set(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = err
}

func (e *endpointsOf) Match(tenant, eventType string) (eps []*schemas.Endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.matched++
	for _, id := range e.match[tenant+"/"+eventType] {
		eps = append(eps, &schemas.Endpoint{ID: id})
	}
	return eps
}

// written keeps what is written, and acknowledges when it is told to.
type written struct {
	mu      sync.Mutex
	all     []schemas.Delivery
	reasons []schemas.Reason
	acks    []func()
}

func (w *written) Deliver(d *schemas.Delivery, acked func()) { w.add(d, "", acked) }

func (w *written) DeadLetter(d *schemas.Delivery, reason schemas.Reason, acked func()) {
	w.add(d, reason, acked)
}

func (w *written) add(d *schemas.Delivery, reason schemas.Reason, acked func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, *d)
	w.reasons = append(w.reasons, reason)
	w.acks = append(w.acks, acked)
}

func (w *written) ids() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.all {
		ids = append(ids, w.all[i].ID())
	}
	return ids
}

// ack acknowledges the nth write.
func (w *written) ack(n int) {
	w.mu.Lock()
	acked := w.acks[n]
	w.mu.Unlock()
	acked()
}

// answers counts what an intake said of each record.
type answers struct {
	mu           sync.Mutex
	done, gaveUp map[int64]int
}

func newAnswers() *answers { return &answers{done: map[int64]int{}, gaveUp: map[int64]int{}} }

func (a *answers) Done(offset int64) { a.mu.Lock(); a.done[offset]++; a.mu.Unlock() }

func (a *answers) GiveUp(offset int64) { a.mu.Lock(); a.gaveUp[offset]++; a.mu.Unlock() }

func (a *answers) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.done) + len(a.gaveUp)
}

type world struct {
	registry *endpointsOf
	writer   *written
	answers  *answers
	router   *Router
	intake   *intake
	routed   []int
	nobody   int
}

func newWorld(edit ...func(*Config)) *world {
	w := &world{registry: &endpointsOf{match: map[string][]string{}}, writer: &written{}, answers: newAnswers()}
	cfg := Config{Registry: w.registry, Writer: w.writer, Logger: slog.New(slog.DiscardHandler),
		Hooks: Hooks{Routed: func(n int) { w.routed = append(w.routed, n) }, Unmatched: func() { w.nobody++ }}}
	for _, e := range edit {
		e(&cfg)
	}
	w.router = newRouter(cfg)
	w.intake = newIntake(w.router, w.answers, consume.Partition{Topic: "orders", Partition: 3})
	return w
}

func event(offset int64, headers ...string) schemas.Record {
	rec := schemas.Record{Topic: "orders", TopicID: [16]byte{0xab}, Partition: 3, Offset: offset, Value: []byte("{}")}
	for _, h := range headers {
		name, v, _ := strings.Cut(h, "=")
		rec.Headers = append(rec.Headers, schemas.Header{Key: name, Value: []byte(v)})
	}
	return rec
}
