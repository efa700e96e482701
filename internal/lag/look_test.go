package lag

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestMain(m *testing.M) { testkit.VerifyMain(m) }

var names = schemas.Names{Prefix: schemas.DefaultPrefix}

// world is an installation without a process.
type world struct {
	t    *testing.T
	fake *testkit.Fake
	cl   *kgo.Client
	adm  *kadm.Client
	r    *Reader
}

func newWorld(t *testing.T) *world {
	t.Helper()
	var topics []testkit.Topic
	for _, name := range []string{names.Deliveries(), names.Hold(), names.Health(), names.DLQ(), names.Retry(time.Minute), names.Retry(24 * time.Hour)} {
		topics = append(topics, testkit.Topic{Name: name, Partitions: 2})
	}
	fake := testkit.NewFake(t, testkit.WithTopics(topics...))
	cl := fake.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	r, err := Open(kafka.Config{Brokers: fake.Brokers()}, nil, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return &world{t: t, fake: fake, cl: cl, adm: kadm.NewClient(cl), r: r}
}

func (w *world) look(now time.Time) *Report {
	w.t.Helper()
	rep, err := w.r.Look(w.t.Context(), now, time.Minute)
	if err != nil {
		w.t.Fatal(err)
	}
	return rep
}

func (w *world) commit(role, topic string, partition int32, at int64, metadata string) {
	w.t.Helper()
	var o kadm.Offsets
	o.Add(kadm.Offset{Topic: topic, Partition: partition, At: at, LeaderEpoch: -1, Metadata: metadata})
	if err := w.adm.CommitAllOffsets(w.t.Context(), names.Group(role), o); err != nil {
		w.t.Fatal(err)
	}
}

// parked are records of a tier whose hops end then.
func parked(tier time.Duration, partition int32, until ...time.Time) []*kgo.Record {
	recs := make([]*kgo.Record, len(until))
	for i, at := range until {
		d := schemas.Delivery{
			EndpointID: "e", HopUntil: at, NotBefore: at.Add(time.Hour), Attempt: 1, Enqueued: at.Add(-tier),
			Origin: schemas.Origin{Topic: names.Deliveries(), TopicID: [4]byte{1}, Offset: int64(i)},
			Event:  schemas.Event{ID: fmt.Sprint(i), Source: "/s", Type: "t"},
		}
		recs[i] = &kgo.Record{Topic: names.Retry(tier), Partition: partition, Key: []byte("e"), Value: []byte("{}")}
		for _, h := range d.Headers() {
			recs[i].Headers = append(recs[i].Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	return recs
}

func topicOf(t *testing.T, r *Report, name string) *Topic {
	t.Helper()
	for i := range r.Topics {
		if r.Topics[i].Topic == name {
			return &r.Topics[i]
		}
	}
	t.Fatalf("the report has no %s", name)
	return nil
}

func TestAnEmptyInstallationHasNothingToDoAndNobodyToDoIt(t *testing.T) {
	rep := newWorld(t).look(time.Now())
	if rep.State != NoMembers || rep.Oldest != nil || rep.OlderThan(0) {
		t.Errorf("%+v", rep)
	}
	if rep.Letters == nil || rep.Letters.Open != 0 || rep.Hold.Records != 0 {
		t.Errorf("%+v %+v", rep.Letters, rep.Hold)
	}
}

// Of 3,000 records of a tier a random number is overdue, by hops that are not quite in
// order, because movers' clocks differ by a little.
func TestOverdueIsFoundByTheHopsOfTheRecords(t *testing.T) {
	w := newWorld(t)
	rng := testkit.Rand(t)
	now := time.Now()
	for i, tier := range []time.Duration{time.Minute, 24 * time.Hour} {
		const n = 3_000
		boundary := 1 + rng.IntN(n-2)
		var until []time.Time
		for j := range n {
			at := now.Add(-behindAfter - time.Second - time.Duration(boundary-j)*time.Millisecond)
			if j >= boundary {
				at = now.Add(time.Duration(j) * time.Millisecond)
			}
			until = append(until, at)
		}
		part := int32(i)
		testkit.Produce(t, w.cl, parked(tier, part, until...)...)
		committed := rand.IntN(boundary)
		w.commit("releaser", names.Retry(tier), part, int64(committed), "")
		topic := topicOf(t, w.look(now), names.Retry(tier))
		p := topic.Partitions[part]
		if p.Overdue != int64(boundary-committed) || p.Waiting != int64(n-boundary) || p.Oldest == nil || p.Oldest.UnixMilli() != until[committed].UnixMilli() {
			t.Errorf("%d overdue and %d waiting since %v, want %d and %d since %v", p.Overdue, p.Waiting, p.Oldest, boundary-committed, n-boundary, until[committed])
		}
		if other := topic.Partitions[1-part]; other.Unfinished != 0 {
			t.Errorf("%+v", other)
		}
	}
}

func TestWhatWaitsIsNotWork(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	testkit.Produce(t, w.cl, parked(24*time.Hour, 0, now.Add(time.Hour), now.Add(2*time.Hour))...)
	rep := w.look(now)
	topic := topicOf(t, rep, names.Retry(24*time.Hour))
	if topic.Waiting != 2 || topic.Overdue != 0 || topic.Oldest != nil || rep.OlderThan(0) || !topic.Exact {
		t.Errorf("%+v", topic)
	}
}

// A producer's transactions leave markers in the log, which have offsets and are no
// records; an aborted one leaves records too that nobody reads.
func TestTransactionMarkersAreNoWork(t *testing.T) {
	w := newWorld(t)
	tx := w.fake.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("x"))
	run := func(n int, end kgo.TransactionEndTry) {
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range n {
			testkit.Produce(t, tx, &kgo.Record{Topic: names.Deliveries(), Key: []byte("e"), Value: []byte("{}")})
		}
		if err := tx.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	run(3, kgo.TryCommit) // 0 to 2, marker 3
	run(2, kgo.TryAbort)  // 4 and 5, marker 6
	run(1, kgo.TryCommit) // 7, marker 8
	for commit, want := range map[int64]int64{0: 4, 3: 1, 7: 1, 8: 0, 9: 0} {
		w.commit("dispatcher", names.Deliveries(), 0, commit, "")
		p := topicOf(t, w.look(time.Now()), names.Deliveries()).Partitions[0]
		if p.Unfinished != want || !p.Exact || p.End != 9 || (p.Oldest == nil) != (want == 0) {
			t.Errorf("committed %d: %d unfinished of the end %d, want %d", commit, p.Unfinished, p.End, want)
		}
	}
}

func TestWhatIsDoneAboveTheCommitIsDone(t *testing.T) {
	w := newWorld(t)
	var recs []*kgo.Record
	for range 10 {
		recs = append(recs, &kgo.Record{Topic: names.Deliveries(), Key: []byte("e"), Value: []byte("{}")})
	}
	testkit.Produce(t, w.cl, recs...)
	id, err := w.r.kafka.TopicID(t.Context(), names.Deliveries())
	if err != nil {
		t.Fatal(err)
	}
	// Committed 2; 3 to 5 and 8 are done.
	metadata := "milena1;" + base64URL(id[:]) + ";2;" + base64URL([]byte{1, 3, 2, 1})
	w.commit("dispatcher", names.Deliveries(), 0, 2, metadata)
	p := topicOf(t, w.look(time.Now()), names.Deliveries()).Partitions[0]
	if p.Unfinished != 4 {
		t.Errorf("%d unfinished, want 2, 6, 7 and 9", p.Unfinished)
	}
	w.commit("dispatcher", names.Deliveries(), 0, 2, "somebody-0b0d3a58-1111-2222-3333-444444444444")
	if p := topicOf(t, w.look(time.Now()), names.Deliveries()).Partitions[0]; p.Unfinished != 8 {
		t.Errorf("%d unfinished with a member's id for metadata, want 8", p.Unfinished)
	}
}

func base64URL(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func TestDeadLettersThatAreNotCountedSayWhy(t *testing.T) {
	w := newWorld(t)
	w.fake.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, r := range req.(*kmsg.DescribeConfigsRequest).Resources {
			refused := kmsg.NewDescribeConfigsResponseResource()
			refused.ResourceType, refused.ResourceName, refused.ErrorCode = r.ResourceType, r.ResourceName, kerr.TopicAuthorizationFailed.Code
			resp.Resources = append(resp.Resources, refused)
		}
		return resp, nil, true
	})
	rep := w.look(time.Now())
	var text strings.Builder
	if err := (Style{}).Write(&text, rep); err != nil {
		t.Fatal(err)
	}
	if rep.Letters != nil || !strings.Contains(text.String(), "not counted: asking for the retention of webhooks.dlq: no right: operation DescribeConfigs on Topic webhooks.dlq") {
		t.Errorf("%+v\n%s", rep.Letters, text.String())
	}
}
