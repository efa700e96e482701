package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/schemas"
)

// Reader reads ranges of partitions with raw fetch requests, from any offset to any
// other, without a consumer: a seek in a kgo consumer drops the buffers of all its
// partitions. It sees committed records only. Safe for concurrent use; one broker
// answers the requests of one Reader one after another.
type Reader struct {
	cl     *kgo.Client
	adm    *kadm.Client
	opts   readerOptions
	unpack kgo.Decompressor // one for all: it keeps its buffers, of megabytes, in pools
	mu     sync.Mutex       // guards topics
	topics map[string]topicLeaders
}

// topicLeaders is where the partitions of a topic are, and since which leader epoch.
type topicLeaders struct {
	id      [16]byte
	leaders []int32
	epochs  []int32
}

// ReaderOption changes one default of a Reader.
type ReaderOption func(*readerOptions)

type readerOptions struct {
	retryFor time.Duration
	pause    time.Duration
}

// WithRetryFor is how long a partition is asked again while it has no leader or its broker
// does not answer; default 30s, because brokers take 9s (broker.session.timeout.ms) to
// notice that one of them is dead. The context may end it sooner.
func WithRetryFor(d time.Duration) ReaderOption { return func(o *readerOptions) { o.retryFor = d } }

// NewReader makes a Reader with a client of its own. Close it.
func NewReader(cfg Config, opts ...ReaderOption) (*Reader, error) {
	o := readerOptions{retryFor: 30 * time.Second, pause: 100 * time.Millisecond}
	for _, f := range opts {
		f(&o)
	}
	cl, err := cfg.NewClient()
	if err != nil {
		return nil, err
	}
	return &Reader{cl: cl, adm: kadm.NewClient(cl), opts: o, unpack: kgo.DefaultDecompressor(), topics: map[string]topicLeaders{}}, nil
}

// Close closes the client; calls in flight fail.
func (r *Reader) Close() { r.cl.Close() }

// Fetched is what one fetch brought.
type Fetched struct {
	Records       []schemas.Record // in offset order, none below the offset asked for
	Next          int64            // where to go on: above Records, and above what was jumped (markers, gaps)
	HighWatermark int64            // end of the log
	Committed     int64            // end of what may be read: below HighWatermark while a transaction is open
	LogStart      int64            // first offset that still exists
	Bytes         int              // taken from the broker

	from int64 // the offset asked for, or below it the start of its batch
}

// ErrOutOfRange: the offset asked for is below the log start (retention) or above
// the end.
var ErrOutOfRange = errors.New("offset is not in the log")

// Fetch reads from offset on, up to about maxBytes and at least one batch. At the
// end of the log it returns without waiting, with Next equal to offset. Brokers that move
// or do not answer are tried again (WithRetryFor), and so is one that leads and does not
// know yet how far its log is committed. An offset outside the log is
// ErrOutOfRange, with LogStart and HighWatermark set.
func (r *Reader) Fetch(ctx context.Context, topic string, partition int32, offset int64, maxBytes int32) (Fetched, error) {
	return r.fetchFrom(ctx, topic, partition, offset, maxBytes, fetchHow{})
}

// fetchHow changes what of an answer is parsed.
type fetchHow struct {
	whole  bool              // also the records of the first batch that lie below the offset: they were read and unpacked anyway
	wanted func([]byte) bool // only batches that it wants; nil: all
}

// FetchAtOrAfter is Fetch that takes retention in its stride: what was there a moment
// ago may be gone. Then it begins at the start of the log; beyond its end there is
// nothing.
func (r *Reader) FetchAtOrAfter(ctx context.Context, topic string, partition int32, offset int64, maxBytes int32) (Fetched, error) {
	f, err := r.Fetch(ctx, topic, partition, offset, maxBytes)
	if errors.Is(err, ErrOutOfRange) && offset < f.LogStart {
		f, err = r.Fetch(ctx, topic, partition, f.LogStart, maxBytes)
	}
	if errors.Is(err, ErrOutOfRange) {
		return Fetched{Next: offset}, nil
	}
	return f, err
}

// fetchFrom is Fetch, how one likes it.
func (r *Reader) fetchFrom(ctx context.Context, topic string, partition int32, offset int64, maxBytes int32, how fetchHow) (Fetched, error) {
	deadline := time.Now().Add(r.opts.retryFor)
	for {
		f, err := r.fetch(ctx, topic, partition, offset, maxBytes, how)
		if err == nil || errors.Is(err, ErrOutOfRange) || errors.Is(err, kgo.ErrClientClosed) {
			return f, err
		}
		if errors.Is(err, errThrottled) && ctx.Err() == nil { // it works, for a while not for us
			deadline = time.Now().Add(r.opts.retryFor)
			continue
		}
		err = fmt.Errorf("reading %s/%d at offset %d: %w", topic, partition, offset, err)
		r.forget(topic)
		if ctx.Err() != nil || !retriable(err) || time.Now().After(deadline) {
			return f, err
		}
		select {
		case <-time.After(r.opts.pause):
		case <-ctx.Done():
			return f, fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
	}
}

// IsTransient reports whether what a Reader's method failed with may be over soon: no
// broker answers for the partition, or not yet. Only for errors of reading.
func IsTransient(err error) bool { return retriable(err) && !errors.Is(err, kgo.ErrClientClosed) }

// retriable: everything that is no answer, and the answers that pass.
func retriable(err error) bool {
	var ke *kerr.Error
	return !errors.As(err, &ke) || ke.Retriable
}

func (r *Reader) fetch(ctx context.Context, topic string, partition int32, offset int64, maxBytes int32, how fetchHow) (Fetched, error) {
	t, err := r.find(ctx, topic)
	if err != nil {
		return Fetched{}, err
	}
	if partition < 0 || int(partition) >= len(t.leaders) {
		return Fetched{}, fmt.Errorf("it has %d partitions: %w", len(t.leaders), kerr.UnknownTopicOrPartition)
	}
	if t.leaders[partition] < 0 {
		return Fetched{}, kerr.LeaderNotAvailable
	}
	// Tried once: a leader that is dead is not waited for, another may lead by now.
	kresp, err := r.cl.Broker(int(t.leaders[partition])).Request(ctx, fetchRequest(topic, t, partition, offset, maxBytes))
	if err != nil {
		return Fetched{}, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return Fetched{}, err
	}
	if resp.ThrottleMillis > 0 && len(resp.Topics) == 0 {
		return Fetched{}, errThrottled
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return Fetched{}, errors.New("the broker's answer does not hold the partition")
	}
	f, err := r.parse(ctx, topic, t.id, &resp.Topics[0].Partitions[0], offset, how)
	if err == nil && f.Next == offset {
		err = r.confirmEnd(ctx, topic, t, partition, offset)
	}
	return f, err
}

// confirmEnd fails unless the log ends at an offset, from which a fetch brought nothing.
// Who has just begun to lead serves fetches up to a high watermark that is old, and may
// be zero after a crash, until the followers have asked. The answers to fetches do not
// tell; asked for the end of the log, such a leader says that it does not know (KIP-207).
// Only the leader is asked, for the brokers of other partitions may be away; and others
// who leads.
func (r *Reader) confirmEnd(ctx context.Context, topic string, at topicLeaders, partition int32, offset int64) error {
	kresp, err := r.cl.Broker(int(at.leaders[partition])).Request(ctx, endRequest(topic, at, partition))
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.ListOffsetsResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errors.New("the broker's answer does not hold the partition's end")
	}
	end := &resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(end.ErrorCode); err != nil {
		return err
	}
	if end.Offset > offset {
		return fmt.Errorf("its leader serves less than the %d that are committed: %w", end.Offset, kerr.OffsetNotAvailable)
	}
	return StillLeads(ctx, r.cl, topic, partition, end.LeaderEpoch)
}

// endRequest asks for the end of what is committed, and names the leader epoch as
// fetchRequest does.
func endRequest(topic string, at topicLeaders, partition int32) *kmsg.ListOffsetsRequest {
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition = partition
	p.CurrentLeaderEpoch = at.epochs[partition]
	p.Timestamp = -1 // the end
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	t.Partitions = append(t.Partitions, p)
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = 1 // read committed, as fetchRequest
	req.Topics = append(req.Topics, t)
	return req
}

// errThrottled: we are over a quota, and the answer is empty. The client lets the next
// request to that broker wait for as long as the broker has said.
var errThrottled = errors.New("the broker throttles us: we are over a quota (consumer_byte_rate)")

// fetchRequest names the leader epoch that we know. A broker that was the leader once
// answers a consumer as a follower (KIP-392), up to a high watermark that it hears of
// later than what we have had acknowledged: with the epoch it says that it is not.
func fetchRequest(topic string, at topicLeaders, partition int32, offset int64, maxBytes int32) *kmsg.FetchRequest {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition = partition
	p.CurrentLeaderEpoch = at.epochs[partition]
	p.FetchOffset = offset
	p.PartitionMaxBytes = maxBytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, at.id // the version that is agreed on decides which is sent
	t.Partitions = append(t.Partitions, p)
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes = maxBytes
	req.IsolationLevel = 1 // read committed: others may write transactions into our topics
	req.SessionEpoch = -1  // no session
	req.Topics = append(req.Topics, t)
	return req
}

func (r *Reader) parse(ctx context.Context, topic string, id [16]byte, rp *kmsg.FetchResponseTopicPartition, offset int64, how fetchHow) (Fetched, error) {
	if errors.Is(kerr.ErrorForCode(rp.ErrorCode), kerr.OffsetOutOfRange) {
		start, end, err := r.bounds(ctx, topic, rp.Partition)
		if err != nil {
			return Fetched{}, err
		}
		if start <= offset && offset <= end { // said by one that leads no more, or it has been written since
			return Fetched{}, fmt.Errorf("its leader says that the offset is out of range, and it holds %d to %d: %w", start, end, kerr.OffsetNotAvailable)
		}
		return Fetched{Next: offset, LogStart: start, HighWatermark: end, Committed: end},
			fmt.Errorf("%s/%d holds offsets %d to %d, not %d: %w", topic, rp.Partition, start, end, offset, ErrOutOfRange)
	}
	from := offset
	if how.whole && len(rp.RecordBatches) >= 8 { // a batch begins with the offset of its first record
		from = min(offset, max(int64(binary.BigEndian.Uint64(rp.RecordBatches)), rp.LogStartOffset))
	}
	size, sifted := len(rp.RecordBatches), int64(0)
	if how.wanted != nil {
		sifted = r.sift(rp, how.wanted)
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: from, Topic: topic, Partition: rp.Partition, IsolationLevel: kgo.ReadCommitted(),
	}, rp, r.unpack, nil)
	f := Fetched{from: from, Next: max(next, offset, sifted), HighWatermark: fp.HighWatermark, Committed: fp.LastStableOffset, LogStart: fp.LogStartOffset, Bytes: size}
	if f.Committed < 0 { // a broker without transactions
		f.Committed = f.HighWatermark
	}
	f.Records = make([]schemas.Record, 0, len(fp.Records))
	for _, rec := range fp.Records {
		f.Records = append(f.Records, FromKgo(rec, id))
	}
	return f, fp.Err
}

// find is where a topic's partitions are, from memory if it is known.
func (r *Reader) find(ctx context.Context, topic string) (topicLeaders, error) {
	r.mu.Lock()
	t, ok := r.topics[topic]
	r.mu.Unlock()
	if ok {
		return t, nil
	}
	// Asked of a broker, not of what the client remembers: that is minutes old.
	req := kmsg.NewPtrMetadataRequest()
	want := kmsg.NewMetadataRequestTopic()
	want.Topic = &topic
	req.Topics = append(req.Topics, want)
	resp, err := req.RequestWith(ctx, r.cl)
	if err != nil {
		return t, err
	}
	if len(resp.Topics) != 1 {
		return t, kerr.UnknownTopicOrPartition
	}
	d := &resp.Topics[0]
	if err := kerr.ErrorForCode(d.ErrorCode); err != nil {
		return t, err
	}
	n := len(d.Partitions)
	t = topicLeaders{id: d.TopicID, leaders: make([]int32, n), epochs: make([]int32, n)}
	for i := range t.leaders {
		t.leaders[i], t.epochs[i] = -1, -1
	}
	for i := range d.Partitions {
		if p := &d.Partitions[i]; int(p.Partition) < n {
			t.leaders[p.Partition], t.epochs[p.Partition] = p.Leader, p.LeaderEpoch
		}
	}
	r.mu.Lock()
	r.topics[topic] = t
	r.mu.Unlock()
	return t, nil
}

func (r *Reader) forget(topic string) {
	r.mu.Lock()
	delete(r.topics, topic)
	r.mu.Unlock()
}

func (r *Reader) bounds(ctx context.Context, topic string, partition int32) (start, end int64, err error) {
	starts, err := r.Starts(ctx, topic)
	if err != nil {
		return 0, 0, err
	}
	ends, err := r.Ends(ctx, topic)
	if err != nil {
		return 0, 0, err
	}
	if int(partition) >= len(starts) || int(partition) >= len(ends) {
		return 0, 0, kerr.UnknownTopicOrPartition
	}
	return starts[partition], ends[partition], nil
}
