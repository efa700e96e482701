package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/kafka"
)

const (
	requestTimeout = 5 * time.Second  // of one question to a broker
	openTimeout    = 15 * time.Second // of everything before the first record
	probeEvery     = 2 * time.Second  // how often a quiet tail asks whether the topic is still there
	staleAfter     = 10 * time.Second // without an answer for so long, what we know may be old
	reopenPause    = time.Second
	fetchMaxWait   = 500 * time.Millisecond
	fetchMaxBytes  = 8 << 20
)

// reader takes in what a tail reads. All calls come from the tail's one goroutine.
type reader interface {
	// restart forgets everything: the topic is about to be read from its start.
	restart()
	// apply takes committed records in offset order; it must not keep their bytes,
	// which share the memory of a whole fetch.
	apply(recs []*kgo.Record)
	// caughtUp is called once after restart, when everything that was committed
	// before the tail began is applied. Its error ends the tail for good.
	caughtUp() error
}

// tail reads a compacted topic of one partition from its start and for ever,
// committed records only. It knows how far it has read and what is committed.
//
// One session is one client reading one incarnation of the topic. A session that
// cannot go on (the topic was deleted, made again or cut back) ends, and the next
// one reads all of it again; a broker that is away does not end a session.
type tail struct {
	cfg    kafka.Config
	topic  string
	reader reader
	log    *slog.Logger
	pace   time.Duration // between two questions for the committed end, at least

	mu      sync.Mutex
	session *session      // nil while there is none
	err     error         // why there is none, or what the last question came to
	contact time.Time     // when a broker last answered
	known   time.Time     // what current said last
	changed chan struct{} // closed and replaced when session changes
}

func newTail(cfg kafka.Config, topic string, r reader) *tail {
	return &tail{cfg: cfg, topic: topic, reader: r, log: cfg.Logger.With("topic", topic), pace: askEvery, err: ErrNotReached, changed: make(chan struct{})}
}

// run reads until ctx ends (then it returns nil) or the reader refuses.
func (t *tail) run(ctx context.Context) error {
	for {
		err := t.runSession(ctx)
		if ctx.Err() != nil {
			t.ended(ErrClosed)
			return nil
		}
		if refused := (*refusedError)(nil); errors.As(err, &refused) {
			t.ended(refused.err)
			return refused.err
		}
		t.ended(err)
		t.log.Warn("reading the topic again from its start", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(reopenPause):
		}
	}
}

// refusedError carries the error of reader.caughtUp out of a session.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }

func (t *tail) ended(err error) { t.set(nil, err) }

func (t *tail) set(s *session, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.session, t.err = s, err
	if s != nil {
		t.contact = time.Now()
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// waitForSession returns at once if there is a session, else when there is one.
func (t *tail) waitForSession(ctx context.Context) error {
	for {
		t.mu.Lock()
		s, err, changed := t.session, t.err, t.changed
		t.mu.Unlock()
		switch {
		case s != nil && s.open():
			return nil
		case errors.Is(err, ErrClosed):
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

func (t *tail) runSession(ctx context.Context) error {
	s, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer s.client.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	t.set(s, nil)
	var asking sync.WaitGroup
	asking.Go(func() { cancel(s.ask(ctx)) })
	err = t.read(ctx, s)
	cancel(err)
	asking.Wait()
	err = context.Cause(ctx)
	s.fail(fmt.Errorf("registry: stopped reading %s: %w", t.topic, err))
	return err
}

// open asks where the topic begins and what of it is committed, and makes the
// client that reads it.
func (t *tail) open(ctx context.Context) (*session, error) {
	asker, err := t.cfg.NewClient()
	if err != nil {
		return nil, err
	}
	defer asker.Close()
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	id, err := topicID(ctx, asker, t.topic)
	if err != nil {
		return nil, err
	}
	start, err := listOffset(ctx, asker, t.topic, offsetStart)
	if err != nil {
		return nil, err
	}
	end, err := listOffset(ctx, asker, t.topic, offsetCommittedEnd)
	if err != nil {
		return nil, err
	}
	client, err := t.cfg.NewClient(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.topic: {0: kgo.NewOffset().At(start)}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// The last offset of a transaction is a control record: without it a
		// position would never reach the committed end.
		kgo.KeepControlRecords(),
		kgo.FetchMaxWait(fetchMaxWait),
		kgo.FetchMaxBytes(fetchMaxBytes),
		kgo.FetchMaxPartitionBytes(fetchMaxBytes),
	)
	if err != nil {
		return nil, err
	}
	return newSession(t, client, id, start, end), nil
}

// read is the poll loop of a session.
func (t *tail) read(ctx context.Context, s *session) error {
	t.reader.restart()
	position, caughtUp := s.position(), false
	for {
		if !caughtUp && position >= s.first {
			if err := t.reader.caughtUp(); err != nil {
				return &refusedError{err}
			}
			caughtUp = true
			s.setReady()
		}
		s.advance(position)
		fetches := s.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		recs := fetches.Records()
		if len(recs) > 0 {
			position = recs[len(recs)-1].Offset + 1
			t.reader.apply(withoutControl(recs))
		}
		if failed := fetches.Errors(); len(failed) > 0 {
			return fmt.Errorf("registry: reading %s: %w", t.topic, failed[0].Err)
		}
	}
}

func withoutControl(recs []*kgo.Record) []*kgo.Record {
	kept := recs[:0]
	for _, r := range recs {
		if !r.Attrs.IsControl() {
			kept = append(kept, r)
		}
	}
	return kept
}

// ready is nil if the topic has been read to its end and a broker has answered lately.
func (t *tail) ready() error {
	t.mu.Lock()
	s, err, contact := t.session, t.err, t.contact
	t.mu.Unlock()
	switch {
	case s == nil:
		return fmt.Errorf("%s is not being read: %w", t.topic, err)
	case !s.isReady():
		return fmt.Errorf("%s is being read: at offset %d of %d", t.topic, s.position(), s.first)
	case time.Since(contact) > staleAfter:
		return fmt.Errorf("no broker has answered about %s for %s, so changes may be missing: %w",
			t.topic, time.Since(contact).Round(time.Second), errors.Join(err, ErrTimeout))
	}
	if behind := s.behindFor(); behind > staleAfter {
		return fmt.Errorf("%s has been committed further than it could be read for %s", t.topic, behind.Round(time.Second))
	}
	return nil
}

// current is as of when all that was committed is known; zero: it never was.
func (t *tail) current() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, at := t.session, t.contact
	if s == nil || !s.isReady() {
		return t.known
	}
	if behind := s.behindFor(); behind > 0 { // an answer then told of more than was read
		if then := time.Now().Add(-behind); then.Before(at) {
			at = then
		}
	}
	if at.After(t.known) {
		t.known = at
	}
	return t.known
}

// position is how far the topic has been read; 0 while it is not being read.
func (t *tail) position() int64 {
	t.mu.Lock()
	s := t.session
	t.mu.Unlock()
	if s == nil {
		return 0
	}
	return s.position()
}

// answered notes what a question came to.
func (t *tail) answered(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	if err == nil {
		t.contact = time.Now()
	}
}

// Places to ask for: timestamp and isolation of a ListOffsets request.
type offsetPlace struct {
	timestamp int64
	isolation int8
}

var (
	offsetStart        = offsetPlace{timestamp: -2}
	offsetCommittedEnd = offsetPlace{timestamp: -1, isolation: 1}
)

func listOffset(ctx context.Context, client *kgo.Client, topic string, place offsetPlace) (int64, error) {
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Timestamp = place.timestamp
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	t.Partitions = append(t.Partitions, part)
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = place.isolation
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return 0, fmt.Errorf("registry: asking for the offsets of %s: %w", topic, err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("registry: asking for the offsets of %s: the answer holds no partition", topic)
	}
	p := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return 0, fmt.Errorf("registry: asking for the offsets of %s: %w", topic, err)
	}
	if place == offsetCommittedEnd {
		if err := kafka.StillLeads(ctx, client, topic, 0, p.LeaderEpoch); err != nil {
			return 0, fmt.Errorf("registry: asking for the committed end of %s: %w", topic, err)
		}
	}
	return p.Offset, nil
}

func topicID(ctx context.Context, client *kgo.Client, topic string) ([16]byte, error) {
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return [16]byte{}, fmt.Errorf("registry: asking for topic %s: %w", topic, err)
	}
	if len(resp.Topics) != 1 {
		return [16]byte{}, fmt.Errorf("registry: asking for topic %s: the answer holds %d topics", topic, len(resp.Topics))
	}
	found := resp.Topics[0]
	if err := kerr.ErrorForCode(found.ErrorCode); err != nil {
		return [16]byte{}, fmt.Errorf("registry: asking for topic %s: %w", topic, err)
	}
	if n := len(found.Partitions); n != 1 {
		return [16]byte{}, fmt.Errorf("registry: topic %s has %d partitions, it must have 1", topic, n)
	}
	return found.TopicID, nil
}
