package dlq

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

const worldPartitions = 4

// uncompressed is for all writers: under the race detector the pool of a codec gives
// what it is given away again, and each batch that is read costs 4 MB of new memory.
var uncompressed = kafka.WithCompression(kgo.NoCompression())

// world is a broker with Milena's topics, a store, and what was written to it.
type world struct {
	testing.TB
	broker any // *testkit.Fake, or with the tag kafka *realkafka.Cluster
	cfg    kafka.Config
	store  *Store
	writer *kafka.Writer
	names  schemas.Names

	written []*letter // in the order of writing
	next    int64     // of the origin
}

// letter is a dead letter as the test knows it.
type letter struct {
	schemas.Letter
	at      time.Time // about when it was written
	settled bool
	order   int // of the writing, in its partition the order of the log
}

// topic is a topic that the world needs.
type topic struct {
	name       string
	partitions int32
	policy     string
}

func topicsOf(names schemas.Names) []topic {
	return []topic{
		{names.DLQ(), worldPartitions, "compact,delete"}, {names.Deliveries(), worldPartitions, "delete"},
		{names.Attempts(), worldPartitions, "delete"}, {names.Health(), worldPartitions, "compact"},
		{names.Endpoints(), 1, "compact"}, {names.Runs(), 1, "compact"}, {names.Audit(), 1, "delete"},
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldFor(t)
}

func newWorldFor(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t}
	w.start()
	w.store = w.open()
	var err error
	if w.writer, err = kafka.NewWriter(w.cfg, uncompressed); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.writer.Close(w.within(10 * time.Second)) })
	return w
}

// open makes another store, as another process would have.
func (w *world) open() *Store {
	w.Helper()
	s, err := Open(w.cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(s.Close)
	s.newWriter = func() (writer, error) { return kafka.NewWriter(w.cfg, uncompressed) }
	return s
}

func (w *world) runs() *Runs {
	r := OpenRuns(w.cfg, "cli")
	w.Cleanup(r.Close)
	return r
}

func (w *world) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	w.Cleanup(cancel)
	return ctx
}

func (w *world) ctx() context.Context { return w.within(testkit.Patience * time.Minute) }

func (w *world) flush() {
	w.Helper()
	if err := w.writer.Flush(w.ctx()); err != nil {
		w.Fatal(err)
	}
}

func partitionOf(endpoint string) int32 { return kafka.Partition([]byte(endpoint), worldPartitions) }

// endpoint registers endpoints, enabled.
func (w *world) endpoint(ids ...string) {
	for _, id := range ids {
		w.endpointAs(schemas.Endpoint{ID: id, URL: "https://example.com/" + id, EventTypes: []string{"*"}, State: schemas.StateEnabled, Version: 1})
	}
	w.flush()
}

func (w *world) endpointAs(ep schemas.Endpoint) {
	value, err := json.Marshal(ep)
	if err != nil {
		w.Fatal(err)
	}
	w.writer.Write(kafka.Message{Topic: w.names.Endpoints(), Key: []byte(ep.ID), Value: value}, nil)
}

// delivery makes one that nobody else has.
func (w *world) delivery(endpoint string) schemas.Delivery {
	w.next++
	return schemas.Delivery{EndpointID: endpoint, Payload: fmt.Appendf(nil, `{"n":%d}`, w.next),
		Origin:  schemas.Origin{Topic: w.names.Deliveries(), TopicID: [4]byte{1, 2, 3, 4}, Partition: partitionOf(endpoint), Offset: w.next},
		Event:   schemas.Event{ID: "e" + strconv.FormatInt(w.next, 10), Source: "/test", Type: "order.created", SpecVersion: "1.0", ContentType: "application/json"},
		Attempt: 9, Enqueued: time.Now().Add(-time.Hour).Truncate(time.Millisecond), FirstAttempt: time.Now().Add(-50 * time.Minute).Truncate(time.Millisecond),
		LastStatus: 500, Error: "HTTP 500"}
}

// die writes a letter. It can be read after a flush.
func (w *world) die(d schemas.Delivery, reason schemas.Reason, at time.Time) *letter {
	l := &letter{Letter: schemas.NewLetter(d, reason, at.UTC().Truncate(time.Millisecond)), at: time.Now(), order: len(w.written)}
	w.put(l)
	w.written = append(w.written, l)
	return l
}

func (w *world) put(l *letter) {
	rec := l.Record()
	w.writer.Write(kafka.Message{Topic: w.names.DLQ(), Partition: partitionOf(l.EndpointID), Key: rec.Key, Value: rec.Value, Headers: rec.Headers}, nil)
}

// bury writes a letter's tombstone.
func (w *world) bury(l *letter) {
	l.settled = true
	w.writer.Write(kafka.Message{Topic: w.names.DLQ(), Partition: partitionOf(l.EndpointID), Key: []byte(l.Key())}, nil)
}

// many writes n letters for the endpoints in turn.
func (w *world) many(n int, endpoints ...string) {
	for i := range n {
		w.die(w.delivery(endpoints[i%len(endpoints)]), schemas.ReasonExhausted, time.Now())
	}
	w.flush()
}

// read is all records of a topic.
func (w *world) read(topic string) (out []schemas.Record) {
	w.Helper()
	ends, err := w.store.reader.Ends(w.ctx(), topic)
	if err != nil {
		w.Fatal(err)
	}
	for p, end := range ends {
		err := w.store.reader.ReadForwards(w.ctx(), topic, int32(p), 0, end, 1<<20, func(recs []schemas.Record) error {
			out = append(out, recs...)
			return nil
		})
		if err != nil {
			w.Fatal(err)
		}
	}
	return out
}

// deliveries is what was written to deliveries, parsed.
func (w *world) deliveries() (out []schemas.Delivery) {
	w.Helper()
	for _, rec := range w.read(w.names.Deliveries()) {
		d, err := schemas.ParseDelivery(rec)
		if err != nil {
			w.Fatalf("offset %d: %v", rec.Offset, err)
		}
		if rec.Partition != partitionOf(d.EndpointID) {
			w.Fatalf("%s is in partition %d", d.EndpointID, rec.Partition)
		}
		out = append(out, d)
	}
	return out
}

// lives counts the deliveries by id and generation.
func (w *world) lives() map[string]int {
	w.Helper()
	out := map[string]int{}
	for _, d := range w.deliveries() {
		out[schemas.LetterKey(d.ID(), d.Generation)]++
	}
	return out
}

// open letters, as a reading finds them: key to letter.
func (w *world) letters(f Filter) map[string]Entry {
	w.Helper()
	out := map[string]Entry{}
	if _, err := w.store.List(w.ctx(), f, func(e *Entry) error { out[e.Key()] = *e; return nil }); err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *world) plan(job Job) *Plan {
	w.Helper()
	if job.Kind == "" {
		job.Kind = schemas.RunReplay
	}
	p, err := w.store.Plan(w.ctx(), job)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// execute plans and does a job that must succeed.
func (w *world) execute(job Job, opts Options) Report {
	w.Helper()
	rep, err := w.store.Execute(w.ctx(), w.plan(job), w.runs(), opts)
	if err != nil {
		w.Fatal(err)
	}
	return rep
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func sameRecord(a, b schemas.Record) bool {
	if !bytes.Equal(a.Key, b.Key) || !bytes.Equal(a.Value, b.Value) || len(a.Headers) != len(b.Headers) {
		return false
	}
	for i := range a.Headers {
		if a.Headers[i].Key != b.Headers[i].Key || !bytes.Equal(a.Headers[i].Value, b.Headers[i].Value) {
			return false
		}
	}
	return true
}
