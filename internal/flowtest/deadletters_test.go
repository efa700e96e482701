package flowtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// store is an operator's: a client of its own.
func (f *flow) store() *dlq.Store {
	f.t.Helper()
	s, err := dlq.Open(f.cfg.KafkaConfig(f.logs))
	must(f.t, err)
	f.t.Cleanup(s.Close)
	return s
}

func (f *flow) runs() *dlq.Runs {
	r := dlq.OpenRuns(f.cfg.KafkaConfig(f.logs), "test")
	f.t.Cleanup(r.Close)
	return r
}

// replay does a job that must succeed.
func (f *flow) replay(s *dlq.Store, job dlq.Job, opts dlq.Options) dlq.Report {
	f.t.Helper()
	job.Kind = schemas.RunReplay
	plan, err := s.Plan(f.t.Context(), job)
	must(f.t, err)
	rep, err := s.Execute(f.t.Context(), plan, f.runs(), opts)
	must(f.t, err)
	return rep
}

// open is the letters that a filter finds, by key.
func (f *flow) open(s *dlq.Store, filter dlq.Filter) map[string]dlq.Entry {
	f.t.Helper()
	found := map[string]dlq.Entry{}
	_, err := s.List(f.t.Context(), filter, func(e *dlq.Entry) error { found[e.Key()] = *e; return nil })
	must(f.t, err)
	return found
}

// bury writes n letters of each endpoint, as the dispatcher does, and returns them.
func (f *flow) bury(n int, endpoints ...string) (letters []schemas.Letter) {
	f.t.Helper()
	w, err := kafka.NewWriter(f.cfg.KafkaConfig(f.logs))
	must(f.t, err)
	for i := range n {
		for _, id := range endpoints {
			event := "letter-" + strconv.Itoa(i)
			part := kafka.Partition([]byte(id), int32(f.cfg.Topics.Partitions))
			d := schemas.Delivery{EndpointID: id, Payload: f.body(event, 200), Attempt: 1, LastStatus: 500,
				Origin: schemas.Origin{Topic: "orders", TopicID: [4]byte{1, 2, 3, 4}, Partition: part, Offset: int64(i)},
				Event:  schemas.Event{ID: event, Source: "/test", Type: "order.created", SpecVersion: "1.0"}}
			l := schemas.NewLetter(d, schemas.ReasonExhausted, time.Now())
			rec := l.Record()
			w.Write(kafka.Message{Topic: f.names().DLQ(), Partition: part, Key: rec.Key, Value: rec.Value, Headers: rec.Headers}, nil)
			letters = append(letters, l)
		}
	}
	must(f.t, w.Close(f.t.Context()))
	return letters
}

// noise is what no codec makes smaller.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// Whatever the broker does, a letter is gone only when its delivery is there.
func TestInvariant1ALetterIsSettledOnlyWhenItsDeliveryIsAcknowledged(t *testing.T) {
	f := newFlowOn(t, newStoppable(t))
	f.endpoint("ep")
	letters := f.bury(50, "ep")
	s := f.store()
	plan, err := s.Plan(t.Context(), dlq.Job{Kind: schemas.RunReplay})
	must(t, err)
	runs := f.runs()
	started := make(chan struct{})
	begin := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := s.Execute(t.Context(), plan, runs, dlq.Options{Started: func(schemas.Run) { close(started); <-begin }})
		ended <- err
	}()
	<-started
	allow := f.cluster.refuse(t, f.names().Deliveries())
	close(begin)
	select {
	case err := <-ended:
		t.Errorf("the run ended with %v, and nothing was acknowledged", err)
	case <-time.After(2 * time.Second):
	}
	allow()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if left := f.open(f.store(), dlq.Filter{}); len(left) != 0 {
		t.Errorf("%d letters are left", len(left))
	}
	written := map[string]time.Time{}
	for _, rec := range f.read(f.names().Deliveries()) {
		d, err := schemas.ParseDelivery(rec)
		must(t, err)
		written[schemas.LetterKey(d.ID(), d.Generation-1)] = rec.Timestamp
	}
	for i := range letters {
		if _, ok := written[letters[i].Key()]; !ok {
			t.Errorf("%s is settled, and no delivery of it is there", letters[i].ID())
		}
	}
}

// Two operators at once, with filters that overlap: everything is delivered, nothing
// is POSTed twice, and what was dropped for that is counted.
func TestTwoReplaysAtOnceDeliverTheUnionOnce(t *testing.T) {
	t.Parallel() // most of it is waiting by the rate
	f := newFlow(t)
	ids := f.endpoints(3)
	f.ready(f.start())
	letters := f.bury(200, ids...)
	for i := range letters {
		f.want(letters[i].EndpointID, letters[i].Event.Source, letters[i].Event.ID, letters[i].Payload)
	}
	stores := []*dlq.Store{f.store(), f.store()}
	filters := []dlq.Filter{{Endpoints: ids[:2]}, {Endpoints: ids[1:]}}
	plans := make([]*dlq.Plan, 2)
	for i, s := range stores {
		var err error
		plans[i], err = s.Plan(t.Context(), dlq.Job{Kind: schemas.RunReplay, Filter: filters[i], Rate: 200, Force: true})
		must(t, err)
	}
	var wg sync.WaitGroup
	reports := make([]dlq.Report, 2)
	for i, s := range stores {
		runs := f.runs()
		wg.Go(func() {
			var err error
			if reports[i], err = s.Execute(t.Context(), plans[i], runs, dlq.Options{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	c := f.delivered(time.Minute)
	f.settled(20 * time.Second)
	f.once()
	written := int(f.endOf(f.names().Deliveries()))
	dropped := 0
	for _, history := range f.attempts() {
		for _, a := range history {
			if a.Outcome == schemas.OutcomeDuplicate {
				dropped++
			}
		}
	}
	skipped := int(reports[0].Run.Counts.Skipped[dlq.SkipSettled] + reports[1].Run.Counts.Skipped[dlq.SkipSettled])
	t.Logf("%s; %d deliveries of %d letters, %d dropped as duplicates, %d found settled by the other", c, written, len(letters), dropped, skipped)
	if c.Repeats != 0 || written-len(letters) != dropped || written+skipped != 800 {
		t.Errorf("each letter of the overlap is written by one and dropped or found settled by the other")
	}
	if left := f.open(f.store(), dlq.Filter{}); len(left) != 0 {
		t.Errorf("%d letters are left", len(left))
	}
}

// Every reason but those that TestInvariant8EveryDeath… waits for, and all of them
// found by the filter.
func TestEveryReasonIsFoundByItsName(t *testing.T) {
	f := newFlow(t)
	f.endpoint("blocked", func(ep *registry.Endpoint) {
		ep.URL = "http://127.0.0.2" + ep.URL[len("http://127.0.0.1"):] // allowed when it was registered
	})
	f.endpoint("ep")
	f.cfg.Egress.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	f.ready(f.start())
	n := int32(f.cfg.Topics.Partitions)
	null := f.record("ep", "null", nil)
	blocked := f.record("blocked", "blocked", []byte(`{}`))
	large := f.record("ep", "large", noise(1<<20+32<<10-200)) // as large as deliveries takes, in the wrong partition
	large.Partition = (large.Partition + 1) % n
	unknown := f.record("nobody", "unknown", []byte(`{}`)) // back from a tier after more than ten minutes
	d := schemas.Delivery{EndpointID: "nobody", Event: schemas.Event{ID: "unknown", Source: "/test", Type: "a", SpecVersion: "1.0"},
		Origin: schemas.Origin{Topic: "orders", TopicID: [4]byte{1}, Offset: 1}, Enqueued: time.Now().Add(-11 * time.Minute)}
	unknown.Headers = nil
	for _, h := range d.Headers() {
		unknown.Headers = append(unknown.Headers, kgo.RecordHeader(h))
	}
	testkit.Produce(t, f.client, null, blocked, unknown)
	big := testkit.NewClient(t, f.cluster.brokers(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(2<<20))
	testkit.Produce(t, big, large)
	f.awaitLetters(4)
	f.settled(20 * time.Second)
	s := f.store()
	for reason, value := range map[schemas.Reason][]byte{schemas.ReasonMalformed: nil, schemas.ReasonBlockedAddress: blocked.Value,
		schemas.ReasonEndpointUnknown: unknown.Value, schemas.ReasonTooLarge: large.Value} {
		filter, err := dlq.Query{Reasons: []string{string(reason)}}.Resolve(time.Now())
		must(t, err)
		found := f.open(s, filter)
		if len(found) != 1 {
			t.Errorf("%d letters of reason %s", len(found), reason)
			continue
		}
		for _, e := range found {
			deaths, err := s.Show(t.Context(), e.ID())
			if err != nil || len(deaths) != 1 || !bytes.Equal(deaths[0].Payload, value) || (value == nil) != (e.Mark == schemas.PayloadNull) {
				t.Errorf("%s: %d bytes, mark %q, %v", reason, e.Size, e.Mark, err)
			}
		}
	}
}

// What has died comes back byte for byte by way of a file, in a request that is what
// milena dlq show --curl prints.
func TestInvariant10TheWayBackThroughAFileChangesNoByte(t *testing.T) {
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	payloads := map[string][]byte{"json": []byte("{ \"b\" : 1.0,\n\t\"a\": 9007199254740993 }\n"), "binary": binary,
		"empty": {}, "megabyte": noise(1<<20 - 4096)}
	f := newFlow(t, testkit.KeepBodies())
	ring, err := registry.ParseKeyRing(f.cfg.Keyring)
	must(t, err)
	p := f.start()
	f.ready(p)
	for name, body := range payloads {
		f.endpoint(name, preset("proofledger"), func(ep *registry.Endpoint) {
			ep.Headers = []schemas.Pair{{Name: "X-Own", Value: "1"}}
			ep.ForwardHeaders = []string{"x-order"}
			ep.Auth = &schemas.Auth{Bearer: "token-of-" + name}
		})
		f.receiver.Script("/"+name, testkit.Sequence(testkit.Answer{Status: 422}, testkit.Answer{}))
		testkit.Produce(t, f.client, f.record(name, name, body,
			kgo.RecordHeader{Key: "x-order", Value: []byte("42")}, kgo.RecordHeader{Key: "traceparent", Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")}))
	}
	f.awaitLetters(len(payloads))
	f.settled(20 * time.Second)

	s := f.store()
	name := filepath.Join(t.TempDir(), "all.jsonl.gz")
	discard := func(job dlq.Job, opts dlq.Options) {
		t.Helper()
		plan, err := s.Plan(t.Context(), job)
		must(t, err)
		_, err = s.Execute(t.Context(), plan, f.runs(), opts)
		must(t, err)
	}
	discard(dlq.Job{Kind: schemas.RunDiscard, Export: name, Why: "test"}, dlq.Options{})
	if left := f.open(s, dlq.Filter{}); len(left) != 0 {
		t.Fatalf("%d letters are left", len(left))
	}
	f.importFile(s, name)
	letters := f.open(s, dlq.Filter{})
	if len(letters) != len(payloads) {
		t.Fatalf("%d letters came back", len(letters))
	}
	rep := f.replay(s, dlq.Job{}, dlq.Options{Wait: true, WaitFor: time.Minute})
	if rep.Outcomes == nil || rep.Outcomes.All.Delivered != int64(len(payloads)) {
		t.Fatalf("%+v", rep.Outcomes)
	}
	for _, e := range letters {
		got := f.receiver.Log.All("/" + e.EndpointID)
		if len(got) != 2 || !bytes.Equal(got[1].Body, payloads[e.EndpointID]) || !bytes.Equal(got[0].Body, got[1].Body) ||
			got[1].Invalid != nil || got[1].MessageID != got[0].MessageID {
			t.Errorf("%s: %d requests", e.EndpointID, len(got))
			continue
		}
		f.sameRequest(s, ring, e.ID(), p.agent, got[1].Header)
	}
}

func (f *flow) importFile(s *dlq.Store, name string) {
	f.t.Helper()
	file, err := os.Open(name)
	must(f.t, err)
	defer file.Close()
	end, err := dlq.Verify(file)
	must(f.t, err)
	_, err = s.Execute(f.t.Context(), dlq.PlanImport("test", "test", name, end), f.runs(), dlq.Options{Source: file})
	must(f.t, err)
}

// sameRequest compares what a person would repeat by hand with what was received.
func (f *flow) sameRequest(s *dlq.Store, ring *registry.KeyRing, id, agent string, got http.Header) {
	f.t.Helper()
	deaths, err := s.Show(context.WithoutCancel(f.t.Context()), id)
	must(f.t, err)
	ep, err := s.Endpoint(f.t.Context(), deaths[0].EndpointID)
	must(f.t, err)
	want, whole, err := dlq.RequestHeaders(&deaths[0].Letter, ep, ring, agent, time.Now())
	if err != nil || !whole {
		f.t.Fatalf("%v %v", whole, err)
	}
	want.Set("Content-Length", strconv.Itoa(len(deaths[0].Payload)))
	for _, h := range []http.Header{got, want} {
		h.Del("Webhook-Timestamp")
		h.Del("Webhook-Signature")
	}
	if names, wanted := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(names, wanted) {
		f.t.Errorf("%s: headers %v, by hand %v", id, names, wanted)
	}
	for name := range want {
		if fmt.Sprint(got[name]) != fmt.Sprint(want[name]) {
			f.t.Errorf("%s: %s: %q, by hand %q", id, name, got[name], want[name])
		}
	}
}
