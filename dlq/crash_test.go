package dlq

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

// wrapWriter puts something between the runs of a store and Kafka.
func (w *world) wrapWriter(s *Store, wrap func(writer) writer) (undo func()) {
	plain := s.newWriter
	s.newWriter = func() (writer, error) {
		inner, err := plain()
		return wrap(inner), err
	}
	return func() { s.newWriter = plain }
}

// lateTombstones holds tombstones back, so that letters die again before them.
type lateTombstones struct {
	writer
	by time.Duration
	wg sync.WaitGroup
}

func (l *lateTombstones) Write(m kafka.Message, done func(kafka.Written)) {
	if m.Value != nil {
		l.writer.Write(m, done)
		return
	}
	l.wg.Add(1)
	time.AfterFunc(l.by, func() { l.writer.Write(m, done); l.wg.Done() })
}

func (l *lateTombstones) Close(ctx context.Context) error {
	l.wg.Wait()
	return l.writer.Close(ctx)
}

// interrupted is the writer of a run that somebody ends once it has written one letter.
type interrupted struct {
	writer
	end   func()
	wrote bool // by the one goroutine that reads its partition
}

func (i *interrupted) Write(m kafka.Message, done func(kafka.Written)) {
	switch {
	case m.Value == nil:
		i.writer.Write(m, done)
	case i.wrote:
		i.end()
		done(kafka.Written{Err: kafka.ErrClosed})
	default:
		i.wrote = true
		i.writer.Write(m, done)
	}
}

// dying is the writer of a process that is killed after a number of acknowledgements:
// nothing is sent any more and no acknowledgement arrives, but what is under way
// lands all the same.
type dying struct {
	writer
	mu    sync.Mutex
	left  int
	open  int // sent deliveries whose tombstone was not acknowledged, at the death
	dead  chan struct{}
	final int
}

func (d *dying) Write(m kafka.Message, done func(kafka.Written)) {
	d.mu.Lock()
	if d.left <= 0 {
		d.mu.Unlock()
		return
	}
	if m.Value != nil {
		d.open++
	}
	d.mu.Unlock()
	d.writer.Write(m, func(res kafka.Written) {
		d.mu.Lock()
		if d.left <= 0 {
			d.mu.Unlock()
			return
		}
		if m.Value == nil {
			d.open--
		}
		if d.left--; d.left == 0 {
			d.final = d.open
			close(d.dead)
		}
		d.mu.Unlock()
		done(res)
	})
}

// kill executes a plan until n acknowledgements have come, then the process is gone.
// It returns the run and how many letters it had written and not settled.
func (w *world) kill(plan *Plan, n int) (string, int) {
	w.Helper()
	store := w.open()
	store.drainFor = time.Millisecond
	d := &dying{left: n, dead: make(chan struct{})}
	w.wrapWriter(store, func(inner writer) writer { d.writer = inner; return d })
	ctx, cancel := context.WithCancel(w.ctx())
	runs := w.runs()
	ended := make(chan struct{})
	id := make(chan string, 1)
	go func() {
		defer close(ended)
		_, _ = store.Execute(ctx, plan, runs, Options{Started: func(r schemas.Run) { id <- r.ID }})
	}()
	select {
	case <-d.dead:
	case <-ended:
		w.Fatal("the run ended before it was killed")
	}
	runs.Close() // it writes no last record
	cancel()
	<-ended
	return <-id, d.final
}

// age makes the record of a run as old as one whose runner has died.
func (w *world) age(id string) {
	w.Helper()
	table := registry.OpenTable(w.cfg, w.names.Runs())
	defer table.Close()
	err := table.Swap(w.ctx(), func(rows registry.Rows) ([]registry.Change, error) {
		run, err := getRun(rows, id)
		if err != nil {
			return nil, err
		}
		run.Updated = run.Updated.Add(-time.Minute)
		value, err := json.Marshal(run)
		return []registry.Change{{Key: id, Value: value}}, err
	})
	if err != nil {
		w.Fatal(err)
	}
}
