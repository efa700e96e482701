package dlq

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// generate fills the topic with letters of all kinds, some settled, some died again,
// and some in it twice. It returns those that are open, in the order of the log.
func generate(w *world, r *rand.Rand, n int) []*letter {
	now := time.Now()
	for i := range n {
		d := w.delivery(fmt.Sprintf("ep_%d", r.IntN(9)))
		d.Event.Type = pick(r, "order.created", "order.item.added", "order", "invoice.paid", "user")
		d.Event.Subject = pick(r, "", "order/1", "order/2", "cart/1")
		d.Event.Tenant = pick(r, "", "acme", "zulu")
		d.LastStatus = pick(r, 0, 404, 410, 500, 503)
		if d.LastStatus == 0 {
			d.ErrorClass = pick(r, schemas.ClassTimeout, schemas.ClassDNS, "")
		}
		d.Generation = pick(r, 0, 0, 0, 1, 2)
		d.Payload = noise(r, r.IntN(300))
		l := w.die(d, pick(r, schemas.Reasons...), now.Add(-time.Duration(i%40)*time.Hour))
		switch r.IntN(10) {
		case 0, 1:
			w.bury(w.written[r.IntN(len(w.written))])
		case 2:
			again := d
			again.Generation++
			w.bury(l)
			w.die(again, l.Reason, l.DiedAt.Add(time.Minute))
		case 3:
			if !l.settled {
				w.put(l) // an owner that did not know whether it had written it
			}
		}
	}
	w.flush()
	var open []*letter
	for _, l := range w.written {
		if !l.settled {
			open = append(open, l)
		}
	}
	return open
}

const (
	queries = 200
	letters = 200
)

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomQuery makes a query and, apart from any code of the package, what it means.
func randomQuery(r *rand.Rand, now time.Time, open []*letter) (Query, func(*letter) bool) {
	var q Query
	var tests []func(*letter) bool
	want := func(f func(*letter) bool) { tests = append(tests, f) }
	if r.IntN(3) == 0 {
		q.Endpoints = []string{fmt.Sprintf("ep_%d", r.IntN(10)), fmt.Sprintf("ep_%d", r.IntN(10))}
		want(func(l *letter) bool { return l.EndpointID == q.Endpoints[0] || l.EndpointID == q.Endpoints[1] })
	}
	if r.IntN(4) == 0 {
		q.Tenants = []string{pick(r, "acme", "zulu", "none")}
		want(func(l *letter) bool { return l.Event.Tenant == q.Tenants[0] })
	}
	if r.IntN(4) == 0 {
		prefix := pick(r, "order.", "order", "invoice.", "")
		q.Types = []string{prefix + "*"}
		want(func(l *letter) bool { return strings.HasPrefix(l.Event.Type, prefix) })
	}
	if r.IntN(6) == 0 {
		q.Subjects = []string{"order/1", "cart/1"}
		want(func(l *letter) bool { return l.Event.Subject == "order/1" || l.Event.Subject == "cart/1" })
	}
	if r.IntN(4) == 0 {
		a, b := pick(r, schemas.Reasons...), pick(r, schemas.Reasons...)
		q.Reasons = []string{string(a), string(b)}
		want(func(l *letter) bool { return l.Reason == a || l.Reason == b })
	}
	if r.IntN(4) == 0 {
		switch r.IntN(3) {
		case 0:
			q.Statuses = []string{"5xx", "404"}
			want(func(l *letter) bool { return l.LastStatus/100 == 5 || l.LastStatus == 404 })
		case 1:
			q.Statuses = []string{"none"}
			want(func(l *letter) bool { return l.LastStatus == 0 })
		case 2:
			q.ErrorClasses = []string{"timeout", "answered"}
			want(func(l *letter) bool {
				return l.ErrorClass == schemas.ClassTimeout || l.ErrorClass == "" && l.LastStatus != 0
			})
		}
	}
	if r.IntN(4) == 0 {
		h := r.IntN(45)
		q.Since = fmt.Sprintf("%dh30m", h)
		want(func(l *letter) bool { return now.Sub(l.DiedAt) <= time.Duration(h)*time.Hour+30*time.Minute })
	}
	if r.IntN(5) == 0 && q.Since == "" {
		q.Until = now.Add(-15*time.Hour - 30*time.Minute).Format(time.RFC3339Nano)
		want(func(l *letter) bool { return now.Sub(l.DiedAt) > 15*time.Hour+30*time.Minute })
	}
	switch r.IntN(8) {
	case 0:
		q.Replayed = true
		want(func(l *letter) bool { return l.Generation > 0 })
	case 1:
		q.NotReplayed = true
		want(func(l *letter) bool { return l.Generation == 0 })
	case 2:
		l := open[r.IntN(len(open))]
		q.IDs = []string{pick(r, l.ID(), l.Key(), l.MessageID(), l.Event.ID), "nothing"}
		exact := q.IDs[0] == l.Key()
		want(func(o *letter) bool { return o.Event.ID == l.Event.ID && (!exact || o.Generation == l.Generation) })
	}
	return q, func(l *letter) bool {
		for _, t := range tests {
			if !t(l) {
				return false
			}
		}
		return true
	}
}

func keysOf(letters []*letter) []string {
	keys := make([]string, len(letters))
	for i, l := range letters {
		keys[i] = l.Key()
	}
	slices.Sort(keys)
	return keys
}

func TestEveryVerbSelectsWhatBruteForceSelects(t *testing.T) {
	w := newWorld(t)
	for i := range 9 {
		w.endpoint(fmt.Sprintf("ep_%d", i))
	}
	r := rand.New(rand.NewPCG(7, uint64(time.Now().UnixNano()))) //nolint:gosec // a test
	open := generate(w, r, letters)
	now, replayed := time.Now(), 0
	for i := range queries {
		q, want := randomQuery(r, now, open)
		var expected []*letter
		for _, l := range open {
			if want(l) {
				expected = append(expected, l)
			}
		}
		f, err := q.Resolve(now)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		if bad := compareVerbs(w, f, expected, i%10 == 0); bad != "" {
			t.Fatalf("query %d %+v, %d expected: %s", i, q, len(expected), bad)
		}
		if n := len(expected); n > 0 && n <= mostReplayed && len(open) > n && replayed < replays {
			if bad := compareReplay(w, f, expected); bad != "" {
				t.Fatalf("query %d %+v, %d expected: %s", i, q, n, bad)
			}
			open = slices.DeleteFunc(open, want)
			replayed++
		}
	}
	t.Logf("%d queries, %d of them replayed", queries, replayed)
}

// So many of the queries are replayed, none that selects more than mostReplayed: what
// is replayed is not there for the queries after it.
const (
	replays      = 4
	mostReplayed = 4
)

// nowhere is a writer that acknowledges everything and keeps it.
type nowhere struct {
	mu       sync.Mutex
	messages []kafka.Message
}

func (n *nowhere) Write(m kafka.Message, done func(kafka.Written)) {
	n.mu.Lock()
	n.messages = append(n.messages, m)
	n.mu.Unlock()
	done(kafka.Written{})
}

func (*nowhere) Close(context.Context) error { return nil }

// compareWritten says what is wrong with what a replay of a selection would write. It is
// all that a replay does, but that the run is not recorded and nothing gets to Kafka: so
// the letters are there for the next filter.
func compareWritten(w *world, f Filter, sel *Selection, expected []*letter) string {
	to := &nowhere{}
	r := &runner{store: w.store, plan: &Plan{Job: Job{Kind: schemas.RunReplay, Filter: f, Snapshot: sel.Snapshot}, Selection: sel},
		writer: to, skipped: map[string]int64{}, pace: newPace(0, 0), room: semaphore.NewWeighted(inFlightBytes)}
	r.lastOK.Store(time.Now().UnixNano())
	if err := r.replay(w.ctx(), nil); err != nil {
		return fmt.Sprintf("replay to nowhere: %v", err)
	}
	var got, want []string
	for i, m := range to.messages {
		if m.Value == nil {
			got = append(got, "settled "+string(m.Key))
			continue
		}
		d, err := schemas.ParseDelivery(schemas.Record{Topic: m.Topic, Partition: m.Partition, Offset: int64(1_000_000 + i), Key: m.Key, Value: m.Value, Headers: m.Headers})
		if err != nil || m.Topic != w.names.Deliveries() {
			return fmt.Sprintf("a replay would write to %s: %v", m.Topic, err)
		}
		got = append(got, fmt.Sprintf("%s %x", schemas.LetterKey(d.ID(), d.Generation), d.Payload))
	}
	for _, l := range expected {
		want = append(want, "settled "+l.Key(), fmt.Sprintf("%s %x", schemas.LetterKey(l.ID(), l.Generation+1), l.Payload))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Sprintf("a replay would write %d of %d", len(got), len(want))
	}
	return ""
}

// compareReplay replays what a filter selects, and says what is wrong with what was written.
func compareReplay(w *world, f Filter, expected []*letter) string {
	before := w.lives()
	if report := w.execute(Job{Filter: f}, Options{}); report.Run.Counts.Written != int64(len(expected)) {
		return fmt.Sprintf("replay: %+v", report.Run.Counts)
	}
	var got, want []string
	for key, n := range w.lives() {
		got = append(got, slices.Repeat([]string{key}, n-before[key])...)
	}
	for _, l := range expected {
		want = append(want, schemas.LetterKey(l.ID(), l.Generation+1))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Sprintf("replayed %q, want %q", got, want)
	}
	if left := w.letters(f); len(left) != 0 {
		return fmt.Sprintf("%d letters are left after their replay", len(left))
	}
	return ""
}

// compareVerbs says which verb does not select what is expected.
func compareVerbs(w *world, f Filter, expected []*letter, dryRun bool) string {
	want := keysOf(expected)
	n, cover, err := w.store.Count(w.ctx(), f)
	if err != nil || !cover.Complete || n != int64(len(want)) {
		return fmt.Sprintf("count: %d %+v %v", n, cover, err)
	}
	if got := slices.Sorted(maps.Keys(w.letters(f))); !slices.Equal(got, want) {
		return fmt.Sprintf("list: %d", len(got))
	}
	sum, err := w.store.Summary(w.ctx(), f)
	if err != nil || sum.Count != n {
		return fmt.Sprintf("summary: %+v %v", sum, err)
	}
	if bad := compareGroups(sum, expected); bad != "" {
		return bad
	}
	if dryRun { // which looks at the endpoints too
		if plan := w.plan(Job{Filter: f}); plan.Total() != n || plan.Write != n {
			return fmt.Sprintf("dry run: %d, %d to be written", plan.Total(), plan.Write)
		}
	}
	sel, err := w.store.Select(w.ctx(), f)
	if err != nil || sel.Total() != n {
		return fmt.Sprintf("select: %+v %v", sel, err)
	}
	if n > 0 {
		if bad := compareWritten(w, f, sel, expected); bad != "" {
			return bad
		}
	}
	var buf bytes.Buffer
	if _, err := w.store.Export(w.ctx(), &buf, sel, f); err != nil {
		return err.Error()
	}
	var got []string
	if _, err := ReadExport(&buf, func(rec schemas.Record) error { got = append(got, string(rec.Key)); return nil }); err != nil {
		return err.Error()
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Sprintf("export: %d", len(got))
	}
	return ""
}

func compareGroups(sum *Summary, expected []*letter) string {
	want := map[string]int64{}
	for _, l := range expected {
		want[fmt.Sprint(l.Reason, l.LastStatus, l.ErrorClass, l.EndpointID)]++
	}
	for _, g := range sum.Groups {
		key := fmt.Sprint(g.Reason, g.Status, g.ErrorClass, g.EndpointID)
		if want[key] != g.Count {
			return fmt.Sprintf("group %s: %d, want %d", key, g.Count, want[key])
		}
		delete(want, key)
	}
	if len(want) > 0 {
		return fmt.Sprintf("groups missing: %v", want)
	}
	return ""
}

func TestALimitTakesTheSameNewestInEveryVerb(t *testing.T) {
	w := newWorld(t)
	for i := range 9 {
		w.endpoint(fmt.Sprintf("ep_%d", i))
	}
	for i := range 200 { // one at a time, so that the times of writing tell which is newer
		w.die(w.delivery(fmt.Sprintf("ep_%d", i%9)), schemas.ReasonGone, time.Now())
		if i%8 == 0 {
			w.flush()
		}
	}
	w.flush()
	for _, limit := range []int{1, 7, 50, 199, 200, 500} {
		f := Filter{Limit: limit}
		var list []Entry
		if _, err := w.store.List(w.ctx(), f, func(e *Entry) error { list = append(list, *e); return nil }); err != nil {
			t.Fatal(err)
		}
		if !slices.IsSortedFunc(list, func(a, b Entry) int { return cmp.Compare(b.Written.UnixMilli(), a.Written.UnixMilli()) }) {
			t.Error("not newest first")
		}
		var chosen []*letter
		for i := range list {
			chosen = append(chosen, w.written[slices.IndexFunc(w.written, func(l *letter) bool { return l.Key() == list[i].Key() })])
		}
		if len(chosen) != min(limit, 200) {
			t.Fatalf("limit %d: %d listed", limit, len(chosen))
		}
		if bad := compareVerbs(w, f, chosen, true); bad != "" {
			t.Errorf("limit %d: %s", limit, bad)
		}
	}
}
