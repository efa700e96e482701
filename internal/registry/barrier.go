package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// askEvery bounds the questions of a Follower for the committed end: 20 a second.
const askEvery = 50 * time.Millisecond

// session reads one incarnation of a topic.
//
// Barriers: everyone who calls before a question is sent shares it. Such a question
// covers all that its callers had seen when they called, because whatever was
// committed by then is below the end that it learns. Who calls while it is under
// way gets the next one: the answer may be older than what he has polled.
type session struct {
	tail   *tail
	client *kgo.Client
	id     [16]byte // of the topic
	first  int64    // the committed end when the session began

	wake chan struct{} // capacity 1: someone joined next

	mu      sync.Mutex
	pos     int64 // last offset seen + 1
	ready   bool
	next    *question   // not sent yet; nil: nobody asks
	waiting []*question // answered, not yet read up to
	ended   error
}

// question is shared by the callers of a barrier; err and end are set before done is closed.
type question struct {
	done     chan struct{}
	err      error
	end      int64
	answered time.Time
}

func newSession(t *tail, client *kgo.Client, id [16]byte, start, end int64) *session {
	return &session{tail: t, client: client, id: id, first: end, pos: start, wake: make(chan struct{}, 1)}
}

// barrier returns nil once everything that was committed before the call has been
// applied. It fails when no broker answers, or when ctx ends first.
func (t *tail) barrier(ctx context.Context) error {
	t.mu.Lock()
	s, err := t.session, t.err
	t.mu.Unlock()
	if s == nil {
		return fmt.Errorf("registry: barrier on %s: %w", t.topic, err)
	}
	q, err := s.join()
	if err != nil {
		return err
	}
	select {
	case <-q.done:
		return q.err
	case <-ctx.Done():
		return fmt.Errorf("registry: barrier on %s: %w", t.topic, ctx.Err())
	}
}

func (s *session) join() (*question, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return nil, s.ended
	}
	if s.next == nil {
		s.next = &question{done: make(chan struct{})}
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return s.next, nil
}

// ask sends the questions, one at a time, until ctx ends or the topic is no longer
// the one that the session began with.
func (s *session) ask(ctx context.Context) error {
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	pace := time.NewTimer(0)
	defer pace.Stop()
	for {
		probing := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		case <-probe.C:
			probing = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pace.C:
		}
		pace.Reset(s.tail.pace)
		if probing {
			if err := s.sameTopic(ctx); err != nil {
				return err
			}
		}
		if err := s.askOnce(ctx); err != nil {
			return err
		}
	}
}

// askOnce returns an error only if the session cannot go on.
func (s *session) askOnce(ctx context.Context) error {
	s.mu.Lock()
	q := s.next
	s.next = nil
	// An answer can only be older than what is read while it is under way: it is
	// measured by what had been read before it was asked for.
	read := s.pos
	s.mu.Unlock()

	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	end, err := listOffset(asking, s.client, s.tail.topic, offsetCommittedEnd)
	cancel()
	s.tail.answered(err)

	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		q.settle(err)
	case end < read:
		err = fmt.Errorf("registry: %s ends at %d and was read to %d: it was cut back or made again", s.tail.topic, end, read)
		q.settle(err)
		return err
	case s.ready && end <= s.pos:
		q.settle(nil)
	default:
		if q == nil { // a probe waits too: this is how ready knows that we are behind
			q = &question{done: make(chan struct{})}
		}
		q.end, q.answered = end, time.Now()
		s.waiting = append(s.waiting, q)
	}
	return nil
}

// sameTopic fails if the topic is gone or is another one of the same name: then
// offsets begin again and what was read is history. That no broker answers is no
// such news.
func (s *session) sameTopic(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	id, err := topicID(ctx, s.client, s.tail.topic)
	switch {
	case err == nil && id != s.id:
		return fmt.Errorf("registry: topic %s was deleted and made again", s.tail.topic)
	case isUnknownTopic(err):
		return err
	}
	return nil
}

func (q *question) settle(err error) {
	if q != nil {
		q.err = err
		close(q.done)
	}
}

// advance notes that everything below pos is applied. Barriers pass only once the
// session is ready: until then the reader shows what it knew before the session, or
// nothing at all.
func (s *session) advance(pos int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pos = pos
	left := s.waiting[:0]
	for _, q := range s.waiting {
		if s.ready && q.end <= pos {
			q.settle(nil)
		} else {
			left = append(left, q)
		}
	}
	clear(s.waiting[len(left):])
	s.waiting = left
}

// fail ends all barriers of the session; no other can join.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = err
	for _, q := range append(s.waiting, s.next) {
		q.settle(err)
	}
	s.waiting, s.next = nil, nil
}

// open reports whether barriers can join.
func (s *session) open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended == nil
}

func (s *session) position() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pos
}

func (s *session) setReady() {
	s.mu.Lock()
	s.ready = true
	s.mu.Unlock()
}

func (s *session) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

// behindFor is for how long something committed has not been read.
func (s *session) behindFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return 0
	}
	return time.Since(s.waiting[0].answered)
}

func isUnknownTopic(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}
