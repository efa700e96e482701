package retrytopics

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// logWriter acknowledges at once, or with the error set, and keeps what was written.
type logWriter struct {
	mu   sync.Mutex
	msgs []kafka.Message
	err  error
	held []func() // with hold set: acknowledgements that wait for ack
	hold bool
}

func (w *logWriter) Write(m kafka.Message, done func(kafka.Written)) {
	w.mu.Lock()
	w.msgs = append(w.msgs, m)
	written := kafka.Written{Offset: int64(len(w.msgs)), Err: w.err}
	if w.hold {
		w.held = append(w.held, func() { done(written) })
		w.mu.Unlock()
		return
	}
	w.mu.Unlock()
	done(written)
}

func (w *logWriter) ack() {
	w.mu.Lock()
	held := w.held
	w.held = nil
	w.mu.Unlock()
	for _, f := range held {
		f()
	}
}

// release ends the holding back of acknowledgements.
func (w *logWriter) release() {
	w.mu.Lock()
	w.hold = false
	w.mu.Unlock()
	w.ack()
}

func (w *logWriter) written() []kafka.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.msgs)
}

type letters struct {
	mu  sync.Mutex
	got []schemas.Reason
	all []schemas.Delivery
}

func (l *letters) DeadLetter(d *schemas.Delivery, reason schemas.Reason, acked func()) {
	l.mu.Lock()
	l.got, l.all = append(l.got, reason), append(l.all, *d)
	l.mu.Unlock()
	acked()
}

func (l *letters) reasons() []schemas.Reason {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.got)
}

// recordOf is m as a reader of its topic gets it.
func recordOf(m kafka.Message, offset int64) schemas.Record {
	return schemas.Record{Topic: m.Topic, TopicID: [16]byte{1}, Partition: m.Partition, Offset: offset, Key: m.Key, Value: m.Value, Headers: m.Headers}
}

func delivery(endpoint string, offset int64) schemas.Delivery {
	d, err := schemas.ParseDelivery(schemas.Record{Topic: "webhooks.deliveries", TopicID: [16]byte{9}, Partition: 3, Offset: offset,
		Key: []byte(endpoint), Value: []byte(`{"n":1}`), Headers: []schemas.Header{{Key: "x-own", Value: []byte("kept")}}})
	if err != nil {
		panic(err)
	}
	return d
}

func newTestParker(t testing.TB, w Writer, dead DeadLetter, now func() time.Time, tiers Tiers) *Parker {
	t.Helper()
	p, err := NewParker(ParkerConfig{Writer: w, DeadLetter: dead, Now: now, Tiers: tiers})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParkWritesTheWholeDeliveryToTheTierItsTimeAsksFor(t *testing.T) {
	w := &logWriter{}
	p := newTestParker(t, w, &letters{}, func() time.Time { return epoch }, nil)
	d := delivery("ep_1", 7)
	d.Attempt, d.LastStatus, d.NotBefore, d.Released, d.Claim = 2, 503, epoch.Add(31*time.Minute), epoch.Add(-time.Hour), 5
	before := d
	acked := 0
	p.Park(&d, func() { acked++ })
	if acked != 1 {
		t.Fatalf("acked %d times", acked)
	}
	if d.HopUntil != before.HopUntil || !d.NotBefore.Equal(before.NotBefore) || !d.Released.Equal(before.Released) {
		t.Error("the caller's delivery was changed")
	}
	m := w.written()[0]
	if m.Topic != "webhooks.retry.30m" || string(m.Key) != "ep_1" || m.Partition != kafka.Partition([]byte("ep_1"), 3) || !bytes.Equal(m.Value, d.Payload) {
		t.Errorf("wrote %s/%d key %s value %s", m.Topic, m.Partition, m.Key, m.Value)
	}
	got, err := schemas.ParseDelivery(recordOf(m, 0))
	if err != nil {
		t.Fatal(err)
	}
	if got.ID() != d.ID() || got.Attempt != 2 || got.LastStatus != 503 || !got.NotBefore.Equal(d.NotBefore) ||
		!got.HopUntil.Equal(epoch.Add(30*time.Minute)) || !got.Released.IsZero() || got.Claim != 0 || len(got.Extra) != 1 {
		t.Errorf("read back %+v", got)
	}
}

func TestParkRoundsUpToTheMillisecondThatAHeaderHolds(t *testing.T) {
	w := &logWriter{}
	p := newTestParker(t, w, &letters{}, func() time.Time { return epoch }, nil)
	d := delivery("ep_1", 7)
	d.NotBefore = epoch.Add(5*time.Second + 1)
	p.Park(&d, func() {})
	got, _ := schemas.ParseDelivery(recordOf(w.written()[0], 0))
	if want := epoch.Add(5*time.Second + time.Millisecond); !got.NotBefore.Equal(want) {
		t.Errorf("not before %v, want %v", got.NotBefore, want)
	}
}

func TestParkOfWhatIsTooLargeBecomesADeadLetter(t *testing.T) {
	w := &logWriter{err: kafka.ErrTooLarge}
	dead := &letters{}
	p := newTestParker(t, w, dead, time.Now, nil)
	d := delivery("ep_1", 7)
	acked := false
	p.Park(&d, func() { acked = true })
	if !acked || !slices.Equal(dead.reasons(), []schemas.Reason{schemas.ReasonTooLarge}) || dead.all[0].Error == "" {
		t.Errorf("acked %v, dead letters %v", acked, dead.all)
	}
}

func TestParkIsNotAcknowledgedWhenTheWriterClosesFirst(t *testing.T) {
	dead := &letters{}
	p := newTestParker(t, &logWriter{err: kafka.ErrClosed}, dead, time.Now, nil)
	d := delivery("ep_1", 7)
	p.Park(&d, func() { t.Error("acknowledged although nothing was written") })
	if len(dead.reasons()) != 0 {
		t.Errorf("dead letters %v", dead.reasons())
	}
}

func TestNewParkerSaysWhatIsMissing(t *testing.T) {
	if _, err := NewParker(ParkerConfig{}); err == nil {
		t.Error("no error without a writer")
	}
	if _, err := NewParker(ParkerConfig{Writer: &logWriter{}, DeadLetter: &letters{}, Tiers: Tiers{0}}); err == nil {
		t.Error("no error for tiers that cannot wait")
	}
}

func TestPropertyAHopNeverEndsBeyondNotBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := epoch.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "now")))
		w := &logWriter{}
		p, err := NewParker(ParkerConfig{Writer: w, DeadLetter: &letters{}, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		d := delivery("ep_1", 1)
		d.NotBefore = now.Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(100*time.Hour)).Draw(t, "wait")))
		p.Park(&d, func() {})
		got, err := schemas.ParseDelivery(recordOf(w.msgs[0], 0))
		if err != nil {
			t.Fatal(err)
		}
		if got.NotBefore.Before(d.NotBefore) || got.NotBefore.Sub(d.NotBefore) > time.Millisecond {
			t.Fatalf("not before %v became %v", d.NotBefore, got.NotBefore)
		}
		if got.HopUntil.After(got.NotBefore) && got.HopUntil.After(now) {
			t.Fatalf("ready %v after the delivery is due", got.HopUntil.Sub(got.NotBefore))
		}
	})
}
