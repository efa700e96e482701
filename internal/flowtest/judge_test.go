package flowtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// delivered waits until the receiver has everything that was produced.
func (f *flow) delivered(timeout time.Duration) testkit.Comparison {
	f.t.Helper()
	var c testkit.Comparison
	testkit.Eventually(f.t, timeout, func() string {
		if c = testkit.Compare(f.produced, f.receiver.Log); !c.Complete() {
			return c.String()
		}
		return ""
	})
	if n := f.receiver.Log.Invalid(); n > 0 {
		f.t.Errorf("%d signatures did not verify", n)
	}
	return c
}

// repeats counts the POSTs of attempts that were POSTed before, all in all and those
// that one and the same process repeated.
func (f *flow) repeats() (all, own int) {
	type attempt struct{ delivery, number string }
	type made struct {
		attempt
		by string
	}
	seen, by := make(map[attempt]int), make(map[made]int)
	for _, r := range f.receiver.Log.All() {
		a := attempt{r.DeliveryID, r.Attempt}
		m := made{a, r.Header.Get("User-Agent")}
		if seen[a]++; seen[a] > 1 {
			all++
		}
		if by[m]++; by[m] > 1 {
			own++
		}
	}
	return all, own
}

// once demands that no attempt was POSTed twice.
func (f *flow) once() {
	f.t.Helper()
	if all, own := f.repeats(); all != 0 {
		f.t.Errorf("%d attempts were POSTed again, %d of them by the same process", all, own)
		f.sampleRepeats(10)
	}
}

// sampleRepeats says when the first n attempts were POSTed that were POSTed twice.
func (f *flow) sampleRepeats(n int) {
	f.t.Helper()
	first := make(map[string]testkit.Received)
	for _, r := range f.receiver.Log.All() {
		key := r.DeliveryID + " attempt " + r.Attempt
		before, seen := first[key]
		if !seen {
			first[key] = r
			continue
		}
		f.t.Logf("%s: %s by %s, %s by %s", key, before.At.Format(clock), before.Header.Get("User-Agent"),
			r.At.Format(clock), r.Header.Get("User-Agent"))
		if n--; n == 0 {
			return
		}
	}
}

const clock = "15:04:05.000"

// inFlight is the number of requests that are open at the receiver.
func (f *flow) inFlight(endpoints ...string) (n int) {
	for _, ep := range endpoints {
		n += f.receiver.Running("/" + ep)
	}
	return n
}

// awaitInFlight waits until exactly n requests are open at the receiver.
func (f *flow) awaitInFlight(n int, endpoints ...string) {
	f.t.Helper()
	testkit.Eventually(f.t, 30*time.Second, func() string {
		if got := f.inFlight(endpoints...); got != n {
			return fmt.Sprintf("%d requests are open, not %d", got, n)
		}
		return ""
	})
}

// attempts returns the delivery log, in order of time within each delivery.
func (f *flow) attempts() map[string][]schemas.Attempt {
	f.t.Helper()
	byDelivery := make(map[string][]schemas.Attempt)
	for _, rec := range f.read(f.names().Attempts()) {
		var a schemas.Attempt
		must(f.t, json.Unmarshal(rec.Value, &a))
		byDelivery[a.DeliveryID] = append(byDelivery[a.DeliveryID], a)
	}
	return byDelivery
}

// awaitDelivered waits until n deliveries are delivered by the delivery log, and returns it.
func (f *flow) awaitDelivered(n int) map[string][]schemas.Attempt {
	f.t.Helper()
	var log map[string][]schemas.Attempt
	testkit.Eventually(f.t, 30*time.Second, func() string {
		log = f.attempts()
		delivered := 0
		for _, history := range log {
			if slices.ContainsFunc(history, func(a schemas.Attempt) bool { return a.Outcome == schemas.OutcomeDelivered }) {
				delivered++
			}
		}
		if delivered != n {
			return fmt.Sprintf("%d deliveries are delivered by the delivery log, not %d", delivered, n)
		}
		return ""
	})
	return log
}

// awaitLetters waits until n dead letters are there and returns them by delivery id.
func (f *flow) awaitLetters(n int) map[string]schemas.Letter {
	f.t.Helper()
	var letters map[string]schemas.Letter
	testkit.Eventually(f.t, 30*time.Second, func() string {
		letters = make(map[string]schemas.Letter)
		for _, rec := range f.read(f.names().DLQ()) {
			l, err := schemas.ParseLetter(rec)
			must(f.t, err)
			letters[l.ID()] = l
		}
		if len(letters) != n {
			return fmt.Sprintf("%d dead letters, not %d", len(letters), n)
		}
		return ""
	})
	return letters
}

// settled waits until the dispatcher's group has committed the end of deliveries.
func (f *flow) settled(timeout time.Duration) {
	f.t.Helper()
	testkit.Eventually(f.t, timeout, func() string {
		lag, err := f.lag()
		if err != nil {
			return err.Error()
		}
		if lag != 0 {
			return fmt.Sprintf("%d records of deliveries are not committed", lag)
		}
		return ""
	})
}

// endOf is how many records were ever written to a topic.
func (f *flow) endOf(topic string) (n int64) {
	f.t.Helper()
	adm, err := f.cfg.KafkaConfig(f.logs).NewAdmin()
	must(f.t, err)
	defer adm.Close()
	ends, err := adm.ListEndOffsets(f.t.Context(), topic)
	must(f.t, err)
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

func (f *flow) lag() (int64, error) {
	adm, err := f.cfg.KafkaConfig(f.logs).NewAdmin()
	if err != nil {
		return 0, err
	}
	defer adm.Close()
	ends, err := adm.ListEndOffsets(f.t.Context(), f.names().Deliveries())
	if err != nil {
		return 0, err
	}
	commits, err := adm.FetchOffsets(f.t.Context(), f.names().Group(app.RoleDispatcher))
	if err != nil {
		return 0, err
	}
	lag := int64(0)
	for _, e := range ends.Offsets().Sorted() {
		at := int64(0)
		if c, ok := commits.Lookup(e.Topic, e.Partition); ok {
			at = max(at, c.At)
		}
		lag += e.At - at
	}
	return lag, nil
}

// read returns all records of a topic, tombstones too.
func (f *flow) read(topic string) []schemas.Record {
	f.t.Helper()
	r, err := kafka.NewReader(f.cfg.KafkaConfig(f.logs))
	must(f.t, err)
	defer r.Close()
	ends, err := r.HighWatermarks(f.t.Context(), topic)
	must(f.t, err)
	var mu sync.Mutex
	var all []schemas.Record
	for p, end := range ends {
		must(f.t, r.ReadForwards(f.t.Context(), topic, int32(p), 0, end, 1<<20, func(recs []schemas.Record) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, recs...)
			return nil
		}))
	}
	return all
}
