package kafka

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// stream is the outstanding writes of one partition, in the order in which they
// were handed in.
//
// It flows: each write goes to the client at once. When the client gives one back
// with an error it is mending: new writes queue behind the failed ones, and rounds
// of them are sent, each when nothing of the partition is left in the client. The
// size of a round is found as TCP finds its window: halved when it was refused as
// too large (down to one record, whose refusal is believed), one after any other
// error; after a success doubled, or above the last halving a little more, until one
// takes all that wait.
//
// Lock order: mu, then the client's locks. The client calls finished without
// holding any of its own.
type stream struct {
	w         *Writer
	topic     string
	partition int32

	mu         sync.Mutex
	head, tail *write
	count      int           // length of the list
	sent       int           // of them, in the client
	mending    bool          // writes are sent in rounds; see above
	group      int           // size of the next round
	slowFrom   int           // from this size on it grows slowly; 0: never
	failed     int           // writes of this round that came back
	err        error         // the last error; nil when flowing
	roundErr   error         // of this round; one that is not "too large" wins
	backoff    time.Duration // before the next round; zero unless retrying something else than a size
	timer      *time.Timer   // runs again; nil when none is set

	heard   time.Time // when the client last gave a write back, or got the first
	answers time.Time // since when the leader answers others and the client says nothing; zero: it does not
	dropped bool      // the client was made to drop what it has, and not all of it came back: no error to tell
}

// write is one record on its way. It is pooled: nothing may keep it after complete.
type write struct {
	rec     kgo.Record
	headers []kgo.RecordHeader
	promise func(*kgo.Record, error) // wr.finished, bound once
	done    func(Written)
	flush   []*sync.WaitGroup // calls of Flush that wait for it

	stream     *stream
	prev, next *write
	since      time.Time // handed in
	waiting    bool      // on our side, not in the client
	alone      bool      // sent with nothing else of its partition in the client
}

var writes sync.Pool // of *write

func newWrite(s *stream, m Message, done func(Written)) *write {
	wr, ok := writes.Get().(*write)
	if !ok {
		wr = new(write)
		wr.promise = wr.finished
	}
	wr.stream, wr.done, wr.since = s, done, time.Now()
	wr.headers = appendKgoHeaders(wr.headers[:0], m.Headers)
	wr.rec = kgo.Record{Topic: m.Topic, Partition: m.Partition, Key: m.Key, Value: m.Value,
		Headers: wr.headers, Timestamp: wr.since}
	return wr
}

// complete tells the caller and gives wr back to the pool. Not under a lock: done
// may call Write.
func (wr *write) complete(res Written) {
	if wr.done != nil {
		wr.done(res)
	}
	flush := wr.flush
	clear(wr.headers)
	*wr = write{promise: wr.promise, headers: wr.headers[:0]}
	writes.Put(wr)
	for _, g := range flush {
		g.Done()
	}
}

// push appends; s.mu is held.
func (s *stream) push(wr *write) {
	wr.prev = s.tail
	if s.tail != nil {
		s.tail.next = wr
	} else {
		s.head = wr
	}
	s.tail = wr
	s.count++
}

// remove takes out; s.mu is held.
func (s *stream) remove(wr *write) {
	if wr.prev != nil {
		wr.prev.next = wr.next
	} else {
		s.head = wr.next
	}
	if wr.next != nil {
		wr.next.prev = wr.prev
	} else {
		s.tail = wr.prev
	}
	wr.prev, wr.next = nil, nil
	s.count--
}

// produce gives one write to the client; s.mu is held. TryProduce does not block
// and calls the promise from another goroutine.
func (s *stream) produce(wr *write) {
	wr.waiting = false
	if s.sent == 0 {
		s.hear()
	}
	s.sent++
	s.w.client.Load().TryProduce(context.Background(), &wr.rec, wr.promise) //nolint:forbidigo // a record once taken is never given up
}

// finished is the client's promise. The client calls promises one after another.
func (wr *write) finished(r *kgo.Record, err error) {
	s := wr.stream
	res := Written{Offset: r.Offset}
	again := false
	s.mu.Lock()
	s.sent--
	s.hear()
	switch {
	case err == nil:
		s.remove(wr)
	case s.w.aborting.Load():
		res.Err = ErrClosed
		s.remove(wr)
	case wr.alone && isTooLarge(err):
		res.Err = ErrTooLarge
		s.remove(wr)
	default:
		again = true
		wr.waiting = true
		s.fail(err)
	}
	wr.alone = false
	if s.mending && s.sent == 0 {
		s.plan()
	}
	s.mu.Unlock()
	if !again {
		wr.complete(res)
	}
}

// fail notes that a write came back; s.mu is held.
func (s *stream) fail(err error) {
	if !s.mending {
		s.mending, s.group, s.slowFrom, s.backoff, s.failed, s.roundErr = true, 0, 0, 0, 0, nil
	}
	s.failed++
	if !s.dropped {
		s.err = err
	}
	if s.roundErr == nil || isTooLarge(s.roundErr) {
		s.roundErr = err
	}
}

// plan judges the round that has just ended and starts the next; s.mu is held and
// nothing is in the client.
func (s *stream) plan() {
	err, failed := s.roundErr, s.failed
	s.roundErr, s.failed, s.dropped = nil, 0, false
	switch {
	case s.w.aborting.Load():
		return // abort takes the rest
	case err == nil:
		s.group, s.backoff = s.grown(), 0
	case isTooLarge(err):
		s.group, s.backoff = max(1, failed/2), 0
		s.slowFrom = s.group
	default:
		s.group = 1
		s.backoff = min(max(2*s.backoff, s.w.opts.retryMin), s.w.opts.retryMax)
		// Half of it is random, so that partitions do not all come back at once.
		s.w.wg.Add(1)
		s.timer = time.AfterFunc(s.backoff/2+rand.N(s.backoff/2+1), s.again)
		return
	}
	s.send(err == nil)
}

// grown is the size of the round after one that landed.
func (s *stream) grown() int {
	if s.slowFrom > 0 && s.group >= s.slowFrom {
		return s.group + 1 + s.group/8
	}
	return max(1, s.group) * 2
}

// send sends one round; s.mu is held and nothing is in the client. After a good
// round, one that takes all that wait ends the mending: later writes follow it.
func (s *stream) send(good bool) {
	n := min(s.group, s.count)
	if n == s.count && (good || n == 0) {
		s.mending, s.err = false, nil
	}
	alone := s.mending && n == 1
	wr := s.head
	for range n {
		next := wr.next
		wr.alone = alone
		s.produce(wr)
		wr = next
	}
}

// again is the timer's. What failed may be what the client remembers of the topic:
// rights, partitions, its id, and the producer's own.
func (s *stream) again() {
	defer s.w.wg.Done()
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	s.w.forget(s.topic, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	if s.mending && s.sent == 0 && !s.w.aborting.Load() {
		s.send(false)
	}
}

// abort fails what waits on our side; the client fails what it has.
func (s *stream) abort() {
	var failed []*write
	s.mu.Lock()
	if s.timer != nil && s.timer.Stop() {
		s.w.wg.Done() // again will not run
	}
	s.timer = nil
	for wr := s.head; wr != nil; {
		next := wr.next
		if wr.waiting {
			s.remove(wr)
			failed = append(failed, wr)
		}
		wr = next
	}
	s.mu.Unlock()
	for _, wr := range failed {
		wr.complete(Written{Err: ErrClosed})
	}
}

// blocked is when the oldest write was handed in, if the stream is retrying or has
// had no answer for too long, and the last error if there was one.
func (s *stream) blocked(now time.Time) (since time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head == nil || s.backoff == 0 && now.Sub(s.head.since) < s.w.opts.stallAfter {
		return time.Time{}, nil
	}
	return s.head.since, s.err
}

// hear notes that the client is at work on the partition; s.mu is held.
func (s *stream) hear() { s.heard, s.answers = time.Now(), time.Time{} }

// silent reports whether the client has writes and has said nothing for so long. A
// single one it does not lose sight of: what is sent past the first are others.
func (s *stream) silent(now time.Time, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent > 1 && now.Sub(s.heard) >= d
}

// stuck takes note of whether the leader of a silent stream answers, and reports
// whether it has done so for as long as the client has to say something.
func (s *stream) stuck(now time.Time, answers bool, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !answers:
		s.answers = time.Time{}
	case s.sent <= 1 || now.Sub(s.heard) < d: // spoke while the leader was asked
	case s.answers.IsZero():
		s.answers = now
	case now.Sub(s.answers) >= d:
		return true
	}
	return false
}

func isTooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// producerIDFailed reports whether the client keeps an error for its producer id
// that it will never ask about again.
func producerIDFailed(cl *kgo.Client) bool {
	// A kept error comes back at once, but from another goroutine: with a context that has
	// ended already ProducerID tells of that alone, on a single processor always. Where no
	// error is kept it asks the broker, as the next write would.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) //nolint:forbidigo // short
	defer cancel()
	_, _, err := cl.ProducerID(ctx)
	var ke *kerr.Error
	return errors.As(err, &ke) && !ke.Retriable
}
