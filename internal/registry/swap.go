package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/schemas"
)

// swap is one compare-and-swap over all its tries. Its id is on every record that it
// writes: a try whose outcome is unknown is resolved by the next one, which after
// its fence and its reading either finds the id in the topic or knows that it will
// never be there.
type swap struct {
	table *Table
	id    string
	check func(Rows) ([]Change, error)
	sent  bool // a commit was asked for and is not known to have failed
}

// checkError is the error of check, carried out of the tries.
type checkError struct{ err error }

func (e *checkError) Error() string { return e.err.Error() }

// try makes a client of its own, because a client that met any error may hold a
// producer id, an epoch or a transaction that is no longer what it believes.
func (s *swap) try(ctx context.Context) error {
	t := s.table
	// First without the fence: the first reading may take long, and a fence held
	// meanwhile would only be taken away by the next writer.
	if err := t.readUp(ctx); err != nil {
		return err
	}
	client, err := t.cfg.NewClient(
		kgo.TransactionalID(t.cfg.Names.RegistryTransactionalID()),
		kgo.TransactionTimeout(transactionTimeout),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
		kgo.ConcurrentTransactionsBackoff(20*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer client.Close()

	t.step(stepFence)
	if _, _, err := client.ProducerID(ctx); err != nil {
		return fmt.Errorf("fencing other writers: %w", err)
	}
	if err := t.readUp(ctx); err != nil {
		return err
	}
	if s.committed() {
		return nil // by an earlier try
	}
	s.sent = false // it was not, and the fence says that it never will be
	t.step(stepCheck)
	recs, err := s.records()
	if err != nil || len(recs) == 0 {
		return err
	}
	t.step(stepWrite)
	if err := s.write(ctx, client, recs); err != nil {
		return err
	}
	t.step(stepReturn)
	return s.readBack(ctx, ownOffset(recs, t.topic))
}

// committed reports whether a record of this swap has been read.
func (s *swap) committed() bool {
	s.table.mu.RLock()
	defer s.table.mu.RUnlock()
	select {
	case <-s.table.seen:
		return true
	default:
		return false
	}
}

// ownOffset is where the last record of the table's own topic was written.
func ownOffset(recs []*kgo.Record, topic string) int64 {
	last := int64(-1)
	for _, rec := range recs {
		if rec.Topic == topic {
			last = max(last, rec.Offset)
		}
	}
	return last
}

func (s *swap) records() ([]*kgo.Record, error) {
	t := s.table
	t.mu.RLock()
	changes, err := s.check(Rows{t.rows})
	t.mu.RUnlock()
	if err != nil {
		return nil, &checkError{err}
	}
	own := len(changes) == 0
	recs := make([]*kgo.Record, 0, len(changes))
	for _, c := range changes {
		if c.Topic == "" {
			c.Topic = t.topic
		}
		own = own || c.Topic == t.topic
		rec := &kgo.Record{Topic: c.Topic, Partition: 0, Key: []byte(c.Key), Value: c.Value}
		for _, h := range c.Headers {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: schemas.HeaderChange, Value: []byte(s.id)})
		recs = append(recs, rec)
	}
	if !own {
		return nil, &checkError{fmt.Errorf("registry: a swap of %s writes only to other topics, so it could not be read back", t.topic)}
	}
	return recs, nil
}

// write puts the records into one transaction and commits it.
func (s *swap) write(ctx context.Context, client *kgo.Client, recs []*kgo.Record) error {
	if err := client.BeginTransaction(); err != nil {
		return fmt.Errorf("beginning the transaction: %w", err)
	}
	// A record that was sent cannot be cancelled, so ctx is watched here; closing
	// the client (try does) is what ends the record.
	acks := make(chan error, len(recs))
	for _, rec := range recs {
		client.Produce(ctx, rec, func(_ *kgo.Record, err error) { acks <- err })
	}
	for range recs {
		var err error
		select {
		case err = <-acks:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			abort(ctx, client, err)
			return fmt.Errorf("writing the change: %w", err)
		}
	}
	s.table.step(stepCommit)
	s.sent = true
	if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("committing the change: %w", err)
	}
	return nil
}

// abort spares readers the wait for the transaction timeout. It is a courtesy: the
// next fence does it too, and did it if we are the ones who were fenced.
func abort(ctx context.Context, client *kgo.Client, why error) {
	if errors.Is(why, kerr.InvalidProducerEpoch) || errors.Is(why, kerr.ProducerFenced) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := client.AbortBufferedRecords(ctx); err == nil {
		_ = client.EndTransaction(ctx, kgo.TryAbort)
	}
}

// errUndone: the transaction was decided and the records are not in it.
var errUndone = errors.New("the change was aborted")

// readBack waits until the record is in the committed part of the topic: after
// EndTxn the committed end may still be old for a moment, and nothing may be told
// to anyone that a reader could not see.
//
// That EndTransaction returned nil is not enough. In kgo 1.22.3 a client's first
// record for a topic can be acknowledged before the client has stored the topic's
// partitions (storePartitionsUpdate hands the waiting records on first and stores
// last); EndTransaction then finds no partition in the transaction, aborts it and
// returns nil. Each of our clients is new, so a busy machine gets there. Once the
// committed end is beyond the record, its fate is known.
func (s *swap) readBack(ctx context.Context, offset int64) error {
	t := s.table
	t.mu.RLock()
	seen := t.seen
	t.mu.RUnlock()
	for {
		select {
		case <-seen:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("reading the change back: %w", ctx.Err())
		case <-time.After(readBackPause):
		}
		if err := t.readUp(ctx); err != nil {
			return fmt.Errorf("reading the change back: %w", err)
		}
		if s.committed() {
			return nil
		}
		if t.tail.position() > offset {
			return errUndone
		}
	}
}

// contention is the pause before another try: random, because two writers that
// fence each other in step would do so for ever.
func contention(try int) time.Duration {
	return time.Duration(rand.Int64N(int64(contentionPause) << min(try, 5)))
}

// permanent errors are not mended by trying again.
func permanent(err error) bool {
	for _, e := range []error{kerr.TransactionalIDAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.TopicAuthorizationFailed,
		kerr.SaslAuthenticationFailed, kerr.InvalidTransactionTimeout, kerr.MessageTooLarge, kerr.RecordListTooLarge,
		kerr.InvalidRecord, kerr.UnknownTopicOrPartition} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
