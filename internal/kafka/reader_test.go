package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

func newReader(t testing.TB, cfg Config, opts ...ReaderOption) *Reader {
	t.Helper()
	r, err := NewReader(cfg, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// fill writes n records of varied sizes, in batches of ten.
func fill(t testing.TB, cfg Config, topic string, partition int32, n int) {
	t.Helper()
	w := newWriter(t, cfg)
	for i := range n {
		w.Write(Message{Topic: topic, Partition: partition, Key: fmt.Append(nil, i), Value: noise(i, i*37%3000),
			Headers: []schemas.Header{{Key: "i", Value: fmt.Append(nil, i)}}}, nil)
		if i%10 == 9 {
			if err := w.Flush(within(t, time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
}

func TestRangesAreExactForwardsAndBackwards(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(2, "webhooks.dlq"))
	fill(t, configFor(c), "webhooks.dlq", 1, 500)
	if err := c.DeleteRecords("webhooks.dlq", 1, 40); err != nil {
		t.Fatal(err)
	}
	r := newReader(t, configFor(c))
	ctx := within(t, 60*time.Second)
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Int64Range(0, 520).Draw(t, "from")
		to := rapid.Int64Range(0, 520).Draw(t, "to")
		chunk := rapid.Int32Range(1, 300_000).Draw(t, "chunk")
		var want, forth, back []int64
		for o := max(from, 40); o < min(to, 500); o++ {
			want = append(want, o)
		}
		collect := func(into *[]int64) func([]schemas.Record) error {
			return func(recs []schemas.Record) error {
				for _, rec := range recs {
					*into = append(*into, rec.Offset)
					if string(rec.Key) != fmt.Sprint(rec.Offset) || rec.Partition != 1 || rec.TopicID == [16]byte{} {
						t.Fatalf("record %+v", rec)
					}
				}
				return nil
			}
		}
		if err := r.ReadForwards(ctx, "webhooks.dlq", 1, from, to, chunk, collect(&forth)); err != nil {
			t.Fatal(err)
		}
		if err := r.ReadBackwards(ctx, "webhooks.dlq", 1, from, to, chunk, collect(&back)); err != nil {
			t.Fatal(err)
		}
		slices.Reverse(back)
		if !slices.Equal(forth, want) || !slices.Equal(back, want) {
			t.Fatalf("want %v\nforwards %v\nbackwards %v", want, forth, back)
		}
	})
}

func TestReadBackwardsReadsHardlyMoreThanOnce(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "t"))
	fill(t, configFor(c), "t", 0, 3000)
	cfg := configFor(c)
	read := new(readBytes)
	cfg.Hooks = []kgo.Hook{read}
	r := newReader(t, cfg)
	most, n := int64(0), 0
	err := r.ReadBackwards(within(t, time.Minute), "t", 0, 0, 3000, 64<<10, func(recs []schemas.Record) error {
		most, n = max(most, sizeOf(recs)), n+len(recs)
		return nil
	})
	if err != nil || n != 3000 {
		t.Fatalf("%d records, %v", n, err)
	}
	if total := int64(3000 * 1650); read.n.Load() < total/2 || read.n.Load() > 2*total || most > 4*64<<10 {
		t.Errorf("read %d bytes for about %d; largest chunk %d", read.n.Load(), total, most)
	}
}

// readBytes counts what came as answers to fetches.
type readBytes struct{ n atomic.Int64 }

func (r *readBytes) OnBrokerRead(_ kgo.BrokerMetadata, key int16, bytes int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.Fetch) {
		r.n.Add(int64(bytes))
	}
}

func TestFetchSaysWhereTheLogBeginsAndEnds(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "t"))
	fill(t, configFor(c), "t", 0, 50)
	if err := c.DeleteRecords("t", 0, 10); err != nil {
		t.Fatal(err)
	}
	r := newReader(t, configFor(c), WithRetryFor(10*time.Millisecond))
	ctx := within(t, time.Minute)
	for _, o := range []int64{3, 60} {
		f, err := r.Fetch(ctx, "t", 0, o, 1<<20)
		if !errors.Is(err, ErrOutOfRange) || f.LogStart != 10 || f.HighWatermark != 50 {
			t.Errorf("offset %d: %+v %v", o, f, err)
		}
	}
	f, err := r.Fetch(ctx, "t", 0, 50, 1<<20)
	if err != nil || len(f.Records) != 0 || f.Next != 50 || f.HighWatermark != 50 || f.LogStart != 10 {
		t.Errorf("at the end: %+v %v", f, err)
	}
	if _, err := r.Fetch(ctx, "t", 7, 0, 1); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("partition 7: %v", err)
	}
}

func TestOnlyCommittedRecordsAreSeen(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "t"))
	cfg := configFor(c)
	tx, err := cfg.NewClient(kgo.TransactionalID("other"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	ctx := within(t, time.Minute)
	transact := func(value string, end kgo.TransactionEndTry) {
		t.Helper()
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := tx.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := tx.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
	transact("aborted", kgo.TryAbort)
	transact("committed", kgo.TryCommit)
	r := newReader(t, cfg)
	f, err := r.Fetch(ctx, "t", 0, 0, 1<<20)
	if err != nil || len(f.Records) != 1 || string(f.Records[0].Value) != "committed" || f.Next != 4 || f.Committed != 4 {
		t.Fatalf("%+v %v", f, err)
	}
	if err := tx.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := tx.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("open")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ends, err := r.Ends(ctx, "t")
	high, err2 := r.HighWatermarks(ctx, "t")
	if err != nil || err2 != nil || ends[0] != 4 || high[0] != 5 {
		t.Errorf("ends %v %v, high watermarks %v %v", ends, err, high, err2)
	}
	if err := tx.EndTransaction(ctx, kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
}

func TestFetchFollowsAMovedPartition(t *testing.T) {
	c := newCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "t"))
	fill(t, configFor(c), "t", 0, 20)
	r := newReader(t, configFor(c))
	ctx := within(t, time.Minute)
	for node := range int32(3) {
		if err := c.MoveTopicPartition("t", 0, node); err != nil {
			t.Fatal(err)
		}
		if f, err := r.Fetch(ctx, "t", 0, 0, 1<<20); err != nil || len(f.Records) != 20 {
			t.Fatalf("leader %d: %d records, %v", node, len(f.Records), err)
		}
	}
	id := func() [16]byte { return c.TopicInfo("t").TopicID }
	old := id()
	if err := c.DeleteTopic("t"); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	fill(t, configFor(c), "t", 0, 5)
	f, err := r.Fetch(ctx, "t", 0, 0, 1<<20)
	if err != nil || len(f.Records) != 5 || f.Records[0].TopicID != id() || id() == old {
		t.Errorf("recreated topic: %d records, %v", len(f.Records), err)
	}
}

func TestFetchGivesUpWithThePartitionsName(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "t"))
	r := newReader(t, configFor(c), WithRetryFor(10*time.Millisecond))
	if _, err := r.Fetch(within(t, time.Minute), "nope", 0, 0, 1); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("%v", err)
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Err: kerr.TopicAuthorizationFailed, Count: -1})
	_, err := r.Fetch(within(t, time.Minute), "t", 0, 0, 1)
	if !errors.Is(err, kerr.TopicAuthorizationFailed) || err.Error()[:len("reading t/0 at offset 0")] != "reading t/0 at offset 0" {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Fetch(ctx, "t", 0, 0, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestOffsetsByTime(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "t"))
	cl, _ := newClient(t, configFor(c))
	ctx := within(t, time.Minute)
	base := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	for i := range 10 {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Timestamp: base.Add(time.Duration(i) * time.Minute)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	r := newReader(t, configFor(c))
	for at, want := range map[time.Duration]int64{-time.Minute: 0, 90 * time.Second: 2, 9 * time.Minute: 9, 20 * time.Minute: 10} {
		if got, err := r.After(ctx, "t", base.Add(at)); err != nil || got[0] != want {
			t.Errorf("after %v: %v %v, want %d", at, got, err, want)
		}
	}
	if s, err := r.Starts(ctx, "t"); err != nil || s[0] != 0 {
		t.Errorf("starts %v %v", s, err)
	}
	if _, err := r.Ends(ctx, "nope"); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("ends of nothing: %v", err)
	}
	if n, err := r.Partitions(ctx, "t"); err != nil || n != 1 {
		t.Errorf("%d partitions, %v", n, err)
	}
}

// A broker that holds us to a quota answers with nothing at all, for longer than one
// that is away would be waited for.
func TestFetchOutlastsAQuota(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "t"))
	fill(t, configFor(c), "t", 0, 20)
	throttled := 0
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if throttled == 3 {
			return nil, nil, false
		}
		throttled++
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.ThrottleMillis = 1
		return resp, nil, true
	})
	r := newReader(t, configFor(c), WithRetryFor(0))
	if f, err := r.Fetch(within(t, time.Minute), "t", 0, 0, 1<<20); err != nil || len(f.Records) != 20 || throttled != 3 {
		t.Errorf("%d records after %d throttled answers, %v", len(f.Records), throttled, err)
	}
}

// A leader that is back after a crash says that its log is empty, until it has heard
// from its followers; asked for the end, it says that it does not know.
func TestALogIsNotOverWhereItsLeaderDoesNotKnowTheEnd(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "t"))
	fill(t, configFor(c), "t", 0, 20)
	for name, read := range map[string]func(*Reader, context.Context, string, int32, int64, int64, int32, func([]schemas.Record) error) error{
		"forwards": (*Reader).ReadForwards, "backwards": (*Reader).ReadBackwards,
	} {
		t.Run(name, func(t *testing.T) {
			emptyFetches(c, 5)
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "t", Err: kerr.OffsetNotAvailable, Count: 2})
			got := 0
			err := read(newReader(t, configFor(c)), within(t, time.Minute), "t", 0, 0, 20, 1<<20, func(recs []schemas.Record) error {
				got += len(recs)
				return nil
			})
			if err != nil || got != 20 {
				t.Errorf("%d of 20 records, %v", got, err)
			}
		})
	}
	emptyFetches(c, -1)
	_, err := newReader(t, configFor(c), WithRetryFor(10*time.Millisecond)).Fetch(within(t, time.Minute), "t", 0, 3, 1)
	if !errors.Is(err, kerr.OffsetNotAvailable) || !strings.Contains(err.Error(), "reading t/0 at offset 3: its leader serves less than the 20 that are committed") {
		t.Errorf("%v", err)
	}
}

// emptyFetches makes a broker answer the next n fetches with nothing; -1: all of them.
func emptyFetches(c *kfake.Cluster, n int) { fetches(c, n, nil) }

// fetches makes a broker answer the next n fetches with nothing, or an error.
func fetches(c *kfake.Cluster, n int, failure *kerr.Error) {
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if n == 0 {
			return nil, nil, false
		}
		n--
		c.KeepControl()
		asked := req.(*kmsg.FetchRequest)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = asked.Topics[0].Topic, asked.Topics[0].TopicID
		part := kmsg.NewFetchResponseTopicPartition()
		if failure != nil {
			part.ErrorCode = failure.Code
		}
		topic.Partitions = append(topic.Partitions, part)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
}
