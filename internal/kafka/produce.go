package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/schemas"
)

// The only two errors of a write. Everything else is retried.
var (
	// ErrTooLarge: the broker (or the client, for want of room in a batch) refused
	// the record although it was sent alone. A refused batch says nothing about its
	// members: they are sent again in ever smaller groups until one stands alone.
	ErrTooLarge = errors.New("record too large for its topic (max.message.bytes)")
	// ErrClosed: the writer was closed before the record was acknowledged. It may
	// have been written all the same.
	ErrClosed = errors.New("kafka writer closed")
)

// Message is a record to be written to a partition that the caller has chosen.
// Key, Value and Headers must not be changed until done was called. A nil Value is
// a tombstone.
type Message struct {
	Topic     string
	Partition int32
	Key       []byte
	Value     []byte
	Headers   []schemas.Header
}

// Written is what became of a write: its offset, or ErrTooLarge or ErrClosed.
type Written struct {
	Offset int64 // where Err is nil
	Err    error
}

// Writer writes records with acks=all and an idempotent producer, and never gives
// up. Safe for concurrent use.
//
// It has no bound of its own: what callers have outstanding is what it holds. A
// bounded buffer would be shared by all partitions, and one stalled partition
// would stall the others; so the bounds are those of the callers.
//
// Order: writes to one partition land in the order in which Write was called, as
// long as the client can retry inside (all that a broker, an election or a network
// does). When a batch is refused outright (too large, not authorized, topic gone),
// what was refused is sent again in its order, but what reaches the client between
// a refusal and our learning of it goes first. Offsets tell the truth.
//
// Repeats: a record is written twice only if its first answer was lost and then
// something else ended the client's own retries: a refusal outright, a producer id
// that had to be made anew, a client that lost sight of it (see unstick), Close and
// a new writer.
type Writer struct {
	cfg    Config
	opts   writerOptions
	log    *slog.Logger
	client atomic.Pointer[kgo.Client] // replaced by renew

	mu      sync.Mutex // guards the making of streams, renew and purged
	purged  map[string]time.Time
	streams atomic.Pointer[map[streamKey]*stream]

	closing  atomic.Bool // no new writes
	aborting atomic.Bool // what fails now fails for good
	closed   sync.Once
	closeErr error
	stop     context.CancelFunc // ends watch
	wg       sync.WaitGroup
}

type streamKey struct {
	topic     string
	partition int32
}

// NewWriter makes a Writer; nothing is dialled before the first write. Close it.
func NewWriter(cfg Config, opts ...WriterOption) (*Writer, error) {
	o := defaultWriterOptions()
	for _, f := range opts {
		f(&o)
	}
	cfg = cfg.WithDefaults()
	w := &Writer{cfg: cfg, opts: o, log: cfg.Logger, purged: map[string]time.Time{}}
	cl, err := w.newClient()
	if err != nil {
		return nil, err
	}
	w.client.Store(cl)
	w.streams.Store(&map[streamKey]*stream{})
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // Close ends it
	w.stop = stop
	w.wg.Go(func() { w.watch(ctx) })
	return w, nil
}

func (w *Writer) newClient() (*kgo.Client, error) {
	return w.cfg.NewClient(
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(w.opts.linger),
		kgo.ProducerBatchCompression(w.opts.compression, kgo.NoCompression()),
		kgo.ProducerBatchMaxBytesFn(DefaultSizes.batchBytes(w.cfg.Names)),
		// Never reached: see Writer. With a bound Produce would block, and we call
		// it under a lock that its promises need.
		kgo.MaxBufferedRecords(math.MaxInt32),
	)
}

// Write hands a record over and returns at once. done is called exactly once, from
// another goroutine or, after Close, from this one; it must not block and may call
// Write. Calls from one goroutine for one partition keep their order (see Writer).
// It panics when the message has no topic.
func (w *Writer) Write(m Message, done func(Written)) {
	if m.Topic == "" {
		panic("kafka: Write of a message without a topic")
	}
	s := w.stream(m.Topic, m.Partition)
	wr := newWrite(s, m, done)
	s.mu.Lock()
	if w.closing.Load() {
		s.mu.Unlock()
		wr.complete(Written{Err: ErrClosed})
		return
	}
	s.push(wr)
	if s.mending {
		wr.waiting = true // behind what waits already, so that order is kept
	} else {
		s.produce(wr)
	}
	s.mu.Unlock()
}

func (w *Writer) stream(topic string, partition int32) *stream {
	key := streamKey{topic, partition}
	if s := (*w.streams.Load())[key]; s != nil {
		return s
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	old := *w.streams.Load()
	if s := old[key]; s != nil {
		return s
	}
	s := &stream{w: w, topic: topic, partition: partition}
	next := maps.Clone(old)
	next[key] = s
	w.streams.Store(&next)
	return s
}

// BlockedSince is when the oldest write was handed in that is being retried, or
// has had no answer for longer than WithStallAfter. Zero: writes are flowing.
func (w *Writer) BlockedSince() time.Time {
	var oldest time.Time
	for _, s := range *w.streams.Load() {
		since, _ := s.blocked(time.Now())
		if !since.IsZero() && (oldest.IsZero() || since.Before(oldest)) {
			oldest = since
		}
	}
	return oldest
}

// Blocked is nil while writes are flowing; else it says since when they are not, of
// which partition the oldest one is, and what its last error was.
func (w *Writer) Blocked() error {
	st := w.stalls(time.Now())
	if st.partitions == 0 {
		return nil
	}
	since := st.oldest.UTC().Format(time.RFC3339)
	if st.err == nil {
		return fmt.Errorf("writes to Kafka are blocked since %s: %s/%d gives no answer", since, st.topic, st.partition)
	}
	return fmt.Errorf("writes to Kafka are blocked since %s: %s/%d: %w", since, st.topic, st.partition, NameRight(st.err, "Write", "Topic", st.topic))
}

// Outstanding is how many writes have neither landed nor failed.
func (w *Writer) Outstanding() int {
	n := 0
	for _, s := range *w.streams.Load() {
		s.mu.Lock()
		n += s.count
		s.mu.Unlock()
	}
	return n
}

// Flush waits until every write that was handed in before has landed or failed,
// and its done has returned. It returns ctx's error when that ends first.
func (w *Writer) Flush(ctx context.Context) error {
	all := new(sync.WaitGroup)
	for _, s := range *w.streams.Load() {
		s.mu.Lock()
		for wr := s.head; wr != nil; wr = wr.next {
			all.Add(1)
			wr.flush = append(wr.flush, all)
		}
		s.mu.Unlock()
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close takes no more writes, waits for those outstanding until ctx ends, and fails
// the rest with ErrClosed; then it closes the client. It returns when every done
// has been called, with an error that says how many failed. Further calls return
// the same.
func (w *Writer) Close(ctx context.Context) error {
	w.closed.Do(func() { w.closeErr = w.close(ctx) })
	return w.closeErr
}

func (w *Writer) close(ctx context.Context) error {
	w.closing.Store(true)
	var err error
	if w.Flush(ctx) != nil {
		err = fmt.Errorf("%d writes had no acknowledgement when the writer was closed", w.Outstanding())
	}
	w.aborting.Store(true)
	w.stop()
	for _, s := range *w.streams.Load() {
		s.abort()
	}
	w.mu.Lock() // no renewal after this
	w.client.Load().Close()
	w.mu.Unlock()
	// The client fails what it holds; its promises come from its own goroutine.
	_ = w.Flush(context.Background()) //nolint:forbidigo // a closed client ends every promise by itself
	w.wg.Wait()
	return err
}

// watch tells of stalls: once when one begins, then every half minute, and once
// when all flows again. One line for the whole writer, however many writes wait.
// And it looks for writes that the client has lost sight of.
func (w *Writer) watch(ctx context.Context) {
	const again = 30 * time.Second
	tick := time.NewTicker(max(w.opts.stallAfter, time.Millisecond))
	defer tick.Stop()
	var began, told, looked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			st := w.stalls(now)
			switch {
			case st.partitions == 0 && !began.IsZero():
				w.log.Info("writes to Kafka flow again", "blocked_for", now.Sub(began).Round(time.Millisecond))
				began, told = time.Time{}, time.Time{}
			case st.partitions > 0 && now.Sub(told) >= again:
				began, told = st.oldest, now
				w.log.Warn("writes to Kafka are not acknowledged; retrying", "topic", st.topic, "partition", st.partition,
					"err", st.err, "writes", st.writes, "partitions", st.partitions, "oldest", now.Sub(st.oldest).Round(time.Millisecond))
			}
			if now.Sub(looked) >= w.opts.stuckAfter/2 {
				looked = now
				w.unstick(ctx)
			}
		}
	}
}

// stall sums up the partitions that are blocked; topic, partition and err are those
// of the oldest write.
type stall struct {
	topic      string
	partition  int32
	err        error
	oldest     time.Time
	writes     int
	partitions int
}

func (w *Writer) stalls(now time.Time) (st stall) {
	for _, s := range *w.streams.Load() {
		since, err := s.blocked(now)
		if since.IsZero() {
			continue
		}
		st.partitions++
		s.mu.Lock()
		st.writes += s.count
		s.mu.Unlock()
		if st.oldest.IsZero() || since.Before(st.oldest) {
			st.topic, st.partition, st.err, st.oldest = s.topic, s.partition, err, since
		}
	}
	return st
}
