package registry

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

const (
	swapTimeout        = 30 * time.Second // of a swap whose context has no deadline
	transactionTimeout = 10 * time.Second // after which a crashed swap no longer holds up readers
	contentionPause    = 50 * time.Millisecond
	readBackPause      = 100 * time.Millisecond // before we ask whether a change was undone
	tableAskEvery      = 5 * time.Millisecond   // a swap asks two or three questions, one after the other
)

// Row is the last committed record of a key. Its bytes are never to be changed.
type Row struct {
	Key       string
	Value     []byte
	Offset    int64
	Timestamp time.Time
}

// Rows is the content of a table at one moment, valid within the function it was given to.
type Rows struct{ rows map[string]Row }

// Get finds the row of a key.
func (r Rows) Get(key string) (Row, bool) { row, ok := r.rows[key]; return row, ok }

// Len is the number of rows.
func (r Rows) Len() int { return len(r.rows) }

// All yields all rows in no order.
func (r Rows) All() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for _, row := range r.rows {
			if !yield(row) {
				return
			}
		}
	}
}

// Change is one record to be written by a swap, to partition 0 of its topic.
type Change struct {
	Topic   string // default: the table's
	Key     string
	Value   []byte // nil: a tombstone
	Headers []schemas.Header
}

// Table is a compacted topic of one partition (endpoints, runs) that is changed by
// compare-and-swap with Kafka alone. All tables of an installation share one
// transactional id, so one swap at a time commits in the whole cluster, whoever
// makes it. It reads in the background from its first use on; Close ends that.
// Methods are safe for concurrent use.
//
// What makes a swap safe, in this order: InitProducerID aborts what an earlier
// writer left open and fences it, so nothing of it can be committed later; only then
// the topic is read to its committed end and the check made; a writer that was
// fenced meanwhile cannot commit. A writer that froze after its check therefore
// fails and starts again from a new reading.
type Table struct {
	cfg   kafka.Config
	topic string
	tail  *tail
	turn  chan struct{} // capacity 1: swaps of this process queue here instead of fencing each other

	step func(step) // tests: stand still or fail between two steps

	life struct {
		sync.Mutex
		started, closed bool
		cancel          context.CancelFunc
		done            chan struct{}
	}

	mu      sync.RWMutex
	rows    map[string]Row
	watched string        // id of the change that is being made
	seen    chan struct{} // closed when it has been read back
}

// step names what a swap is about to do.
type step string

const (
	stepFence  step = "fence"
	stepCheck  step = "check"
	stepWrite  step = "write"
	stepCommit step = "commit"
	stepReturn step = "return"
)

// OpenTable makes a table over a topic. Nothing is dialled yet.
func OpenTable(cfg kafka.Config, topic string) *Table {
	cfg = cfg.WithDefaults()
	t := &Table{cfg: cfg, topic: topic, turn: make(chan struct{}, 1), step: func(step) {}}
	t.tail = newTail(cfg, topic, t)
	t.tail.pace = tableAskEvery
	return t
}

// Close ends the background reading. Swaps under way fail.
func (t *Table) Close() {
	t.life.Lock()
	started := t.life.started
	t.life.closed = true
	t.life.Unlock()
	if started {
		t.life.cancel()
		<-t.life.done
	}
}

// start begins the reading. It lives until Close, longer than the call that needed
// it first.
func (t *Table) start(ctx context.Context) error {
	t.life.Lock()
	defer t.life.Unlock()
	if t.life.closed {
		return ErrClosed
	}
	if t.life.started {
		return nil
	}
	t.life.started = true
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.life.cancel, t.life.done = cancel, make(chan struct{})
	go func() {
		defer close(t.life.done)
		_ = t.tail.run(ctx) // a table refuses nothing, so this is the end of ctx
	}()
	return nil
}

// Read calls view with everything that was committed before the call. view must not
// call the table.
func (t *Table) Read(ctx context.Context, view func(Rows) error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := t.readUp(ctx); err != nil {
		return t.gaveUp(ctx, err, false)
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return view(Rows{t.rows})
}

// readUp waits for a barrier, also over a change of session.
func (t *Table) readUp(ctx context.Context) error {
	if err := t.start(ctx); err != nil {
		return err
	}
	for {
		err := t.tail.barrier(ctx)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return err
		}
		if err := t.tail.waitForSession(ctx); err != nil {
			return err
		}
	}
}

// Swap calls check with the committed content, writes what it returns in one
// transaction, reads it back and returns nil. No other swap commits between the
// content that check sees and the commit. check is called again when another writer
// came first, so it must have no effects but its result; its error ends the swap and
// is returned as it is. At least one change must be for the table's own topic; none
// at all writes nothing.
//
// An error that is an ErrTimeout means that ctx (30 s without a deadline) ended
// first; a *UnknownOutcomeError that this happened between write and confirmation.
func (t *Table) Swap(ctx context.Context, check func(Rows) ([]Change, error)) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return t.gaveUp(ctx, ctx.Err(), false)
	}
	s := swap{table: t, id: rand.Text(), check: check}
	t.watch(s.id)
	defer t.watch("")
	for try := 0; ; try++ {
		err := s.try(ctx)
		if refused := (*checkError)(nil); errors.As(err, &refused) {
			return refused.err
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, ErrClosed) || permanent(err) {
			return t.gaveUp(ctx, err, s.sent)
		}
		t.cfg.Logger.Debug("a change is tried again", "topic", t.topic, "attempt", try+1, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(contention(try)):
		}
	}
}

func (t *Table) gaveUp(ctx context.Context, err error, sent bool) error {
	if sent {
		return &UnknownOutcomeError{err}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.tail.mu.Lock()
		why := t.tail.err
		t.tail.mu.Unlock()
		if why != nil && !errors.Is(err, why) {
			err = errors.Join(err, why)
		}
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return err
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, swapTimeout)
}

// watch makes apply look for the records of a change.
func (t *Table) watch(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watched, t.seen = id, make(chan struct{})
}

// restart implements reader.
func (t *Table) restart() {
	t.mu.Lock()
	t.rows = make(map[string]Row)
	t.mu.Unlock()
}

// apply implements reader.
func (t *Table) apply(recs []*kgo.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rec := range recs {
		key := string(rec.Key)
		if rec.Value == nil {
			delete(t.rows, key)
		} else {
			t.rows[key] = Row{Key: key, Value: bytes.Clone(rec.Value), Offset: rec.Offset, Timestamp: rec.Timestamp}
		}
		for _, h := range rec.Headers {
			if h.Key == schemas.HeaderChange && t.watched != "" && string(h.Value) == t.watched {
				t.watched = ""
				close(t.seen)
			}
		}
	}
}

// caughtUp implements reader.
func (t *Table) caughtUp() error { return nil }
