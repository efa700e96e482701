package flowtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/lag"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// samples are what processes serve at /metrics, by series.
type samples map[string]float64

// scrape adds up what the processes serve.
func (f *flow) scrape(procs ...*process) samples {
	f.t.Helper()
	all := samples{}
	for _, p := range procs {
		w := httptest.NewRecorder()
		p.app.Handler().ServeHTTP(w, httptest.NewRequestWithContext(f.t.Context(), http.MethodGet, "/metrics", nil))
		for line := range strings.Lines(w.Body.String()) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			series, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			if i := strings.LastIndex(line, "} "); i >= 0 {
				series, text = line[:i+1], strings.TrimSpace(line[i+2:])
			}
			v, err := strconv.ParseFloat(text, 64)
			must(f.t, err)
			all[series] += v
		}
	}
	return all
}

// sum adds the series of a metric up that have all the labels, name="value" each.
func (s samples) sum(metric string, labels ...string) (total float64) {
next:
	for series, v := range s {
		name, rest, _ := strings.Cut(series, "{")
		if name != metric {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue next
			}
		}
		total += v
	}
	return total
}

// look is what milena lag tells.
func (f *flow) look(now time.Time) *lag.Report {
	f.t.Helper()
	r, err := lag.Open(f.cfg.KafkaConfig(f.logs), nil, testkit.Patience*20*time.Second)
	must(f.t, err)
	defer r.Close()
	rep, err := r.Look(f.t.Context(), now, testkit.Patience*20*time.Second)
	must(f.t, err)
	return rep
}

// topicOf finds a topic in a report.
func (f *flow) topicOf(r *lag.Report, topic string) *lag.Topic {
	f.t.Helper()
	for i := range r.Topics {
		if r.Topics[i].Topic == topic {
			return &r.Topics[i]
		}
	}
	f.t.Fatalf("no %s in the report", topic)
	return nil
}

// copies are two records of one attempt, as a crash between its writes leaves them.
func (f *flow) copies(endpoint string) []*kgo.Record {
	d := schemas.Delivery{
		EndpointID: endpoint, Enqueued: time.Now(), Event: schemas.Event{ID: "copied", Source: "/test", Type: "thing.happened", SpecVersion: "1.0"},
		Origin: schemas.Origin{Topic: f.names().Deliveries(), TopicID: [4]byte{1, 2, 3, 4}, Offset: 77},
	}
	rec := f.record(endpoint, "copied", []byte("{}"))
	rec.Headers = nil
	for _, h := range d.Headers() {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	again := *rec
	return []*kgo.Record{rec, &again}
}

// All processes are killed while requests hang, deliveries are on hold and others wait
// in tiers: milena lag tells all of it to the record.
func TestWithEveryProcessDeadLagIsRight(t *testing.T) {
	t.Parallel() // most of it is waiting for a session to end
	const hanging, held, waits, overdue = 3, 7, 4, 5
	f := newFlow(t)
	f.mortal()
	f.cfg.Dispatcher.LaneTime = time.Minute // what hangs is not put on hold
	good := f.endpoints(4)
	never := make(chan struct{})
	f.endpoint("hangs")
	f.receiver.Script("/hangs", testkit.Always(testkit.Answer{Hang: never}))
	f.endpoint("paused")
	f.receiver.Script("/paused", testkit.Always(testkit.Answer{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"3000"}}}))
	f.endpoint("waits", schedule(time.Hour))
	f.receiver.Script("/waits", testkit.Status(http.StatusServiceUnavailable))
	victim := f.spawn()
	f.send(hanging, 300, "hangs")
	f.send(1, 300, "paused")
	f.receiver.WaitFor(t, 2, 30*time.Second)
	f.send(20, 300, good...)
	f.send(held, 300, "paused")
	for i := range waits {
		testkit.Produce(t, f.client, f.record("waits", fmt.Sprint(i), []byte("{}")))
	}
	deliveries := f.names().Deliveries()
	// wrong compares everything but what waits: the one that was answered 429 waits too.
	wrong := func(rep *lag.Report, unfinished, waiting, overdue int64) string {
		d := f.topicOf(rep, deliveries)
		w, o := int64(0), int64(0)
		for i := range rep.Topics {
			w += rep.Topics[i].Waiting
			o += rep.Topics[i].Overdue
		}
		if d.Unfinished != unfinished || !d.Exact || w != waiting || o != overdue || rep.Hold.Records != held {
			return fmt.Sprintf("unfinished %d (want %d), waiting %d (%d), overdue %d (%d), held %d (%d)", d.Unfinished, unfinished, w, waiting, o, overdue, rep.Hold.Records, held)
		}
		return ""
	}
	testkit.Eventually(t, 30*time.Second, func() string { return wrong(f.look(time.Now()), hanging, waits+1, 0) })
	victim.kill()
	// What comes now nobody takes: a producer's transaction with its marker, and what
	// should have left a tier a minute ago.
	tx := testkit.NewClient(t, f.cluster.brokers(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(f.cfg.Prefix+"producer"))
	must(t, tx.BeginTransaction())
	testkit.Produce(t, tx, f.record(good[0], "in-a-transaction", []byte("{}")))
	must(t, tx.EndTransaction(t.Context(), kgo.TryCommit))
	late := f.copies("waits")[0]
	late.Topic, late.Partition = f.names().Retry(10*time.Second), 1
	late.Headers = append(late.Headers, kgo.RecordHeader{Key: schemas.HeaderHopUntil, Value: strconv.AppendInt(nil, time.Now().Add(-time.Minute).UnixMilli(), 10)})
	for range overdue {
		again := *late
		testkit.Produce(t, f.client, &again)
	}
	testkit.Eventually(t, 30*time.Second, func() string { return wrong(f.look(time.Now()), hanging+1, waits+1, overdue) })
	testkit.Eventually(t, 30*time.Second, func() string { // the group notices after its session timeout
		for _, topic := range f.look(time.Now()).Topics {
			if topic.State != lag.NoMembers {
				return topic.Topic + " is " + string(topic.State)
			}
		}
		return ""
	})
	rep := f.look(time.Now().Add(2 * time.Minute))
	if !rep.OlderThan(time.Minute) || len(rep.Hold.Endpoints) != 1 || rep.Hold.Endpoints[0].Endpoint != "paused" || rep.Hold.AsOf == nil || rep.Hold.Since == nil {
		t.Errorf("%+v %+v", rep.Oldest, rep.Hold)
	}
	var text strings.Builder
	must(t, lag.Style{}.Write(&text, rep))
	t.Log("\n" + text.String())
}

// waitInTheLongestTier lets n records wait for 24 hours beside a process that has
// nothing to do.
func waitInTheLongestTier(t *testing.T, n int) {
	t.Helper()
	f := newFlow(t)
	p := f.start()
	f.ready(p)
	now := time.Now()
	recs := make([]*kgo.Record, 0, n)
	for i := range n {
		d := schemas.Delivery{
			EndpointID: fmt.Sprintf("ep%d", i%100), Attempt: 7, Enqueued: now.Add(-24 * time.Hour), HopUntil: now.Add(24*time.Hour - time.Duration(n-i)*time.Millisecond),
			NotBefore: now.Add(25 * time.Hour), Event: schemas.Event{ID: fmt.Sprint(i), Source: "/test", Type: "thing.happened"},
			Origin: schemas.Origin{Topic: f.names().Deliveries(), TopicID: [4]byte{1}, Offset: int64(i)},
		}
		rec := &kgo.Record{Topic: f.names().Retry(24 * time.Hour), Partition: int32(i % f.cfg.Topics.RetryPartitions), Key: []byte(d.EndpointID), Value: []byte("{}")}
		for _, h := range d.Headers() {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		recs = append(recs, rec)
	}
	testkit.Produce(t, f.client, recs...)
	var rep *lag.Report
	testkit.Eventually(t, 30*time.Second, func() string { // the topics of the releaser are assigned within seconds
		rep = f.look(time.Now())
		tier := f.topicOf(rep, f.names().Retry(24*time.Hour))
		if rep.State != lag.Waiting || tier.State != lag.Waiting || tier.Waiting != int64(n) || tier.Overdue != 0 || rep.Oldest != nil {
			return fmt.Sprintf("%s: %d waiting, %d overdue", rep.State, tier.Waiting, tier.Overdue)
		}
		return ""
	})
	s := f.scrape(p)
	if s.sum("milena_overdue_records") != 0 || s.sum("milena_unfinished_records") != 0 || s.sum("milena_oldest_overdue_timestamp_seconds") != 0 {
		t.Error("its metrics raise an alarm")
	}
	t.Logf("%d records: %s, overdue %d", n, rep.State, rep.Topics[len(rep.Topics)-1].Overdue)
}
