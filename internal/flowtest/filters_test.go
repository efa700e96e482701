package flowtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

const (
	openLetters = 200 // before each filter
	mostChosen  = 20  // by a filter, but for the last one, which selects all
)

// Every verb selects what a loop over the generated letters selects, and what is
// replayed is what the receiver gets: those letters, each once, byte for byte.
func TestRandomFiltersSelectInEveryVerbWhatBruteForceSelects(t *testing.T) {
	t.Parallel() // most of it is waiting
	filters := 200
	if testkit.Race {
		filters = 20
	}
	p := newPool(t)
	limited, empty, replayed := 0, 0, 0
	for i := range filters {
		p.fill(openLetters)
		q, want := p.query(time.Now())
		if i == filters-1 {
			q, want = dlq.Query{}, slices.Clone(p.open)
		}
		f, err := q.Resolve(time.Now())
		must(t, err)
		if f.Limit > 0 && f.Limit < len(want) {
			limited++
			want = p.newest(f, want)
		}
		if bad := p.disagrees(f, want); bad != "" {
			t.Fatalf("filter %d, %+v, which selects %d of %d: %s", i, q, len(want), len(p.open), bad)
		}
		if len(want) == 0 {
			empty++
		}
		replayed += p.replayed(f, want)
	}
	p.settled(time.Minute)
	c := p.delivered(time.Minute)
	t.Logf("%d filters, %d of them with a limit that cuts off, %d select nothing; %d letters replayed; %s", filters, limited, empty, replayed, c)
	if c.Repeats != 0 || c.Received != replayed || replayed == 0 {
		t.Errorf("%d letters were replayed: %s", replayed, c)
	}
}

// pool is dead letters of all kinds, and what the test knows of them.
type pool struct {
	*flow

	rand   *rand.Rand
	writer *kafka.Writer
	store  *dlq.Store
	runs   *dlq.Runs
	next   int64             // of the origin
	open   []*schemas.Letter // in the order of writing
}

const poolEndpoints = 9 // the last one is disabled

const poolDisabled = "ep_8"

func newPool(t *testing.T) *pool {
	t.Helper()
	p := &pool{flow: newFlow(t), rand: testkit.Rand(t)}
	for i := range poolEndpoints {
		p.endpoint(fmt.Sprintf("ep_%d", i))
	}
	_, err := p.admin.Disable(t.Context(), registry.Actor{Who: "test", Door: "test"}, poolDisabled, "test")
	must(t, err)
	p.writer, err = kafka.NewWriter(p.cfg.KafkaConfig(p.logs), kafka.WithCompression(kgo.NoCompression()))
	must(t, err)
	t.Cleanup(func() { must(t, p.writer.Close(context.Background())) })
	p.store, p.runs = p.flow.store(), p.flow.runs()
	p.ready(p.start())
	return p
}

// fill writes letters until n are open: some of what it writes was settled, some died
// again, and some is there twice.
func (p *pool) fill(n int) {
	p.t.Helper()
	for len(p.open) < n {
		l := p.letter()
		p.write(&l, true)
		switch p.rand.IntN(8) {
		case 0:
			p.write(&l, false)
			continue
		case 1:
			p.write(&l, false)
			l.Generation++
			l.DiedAt = l.DiedAt.Add(time.Minute)
			p.write(&l, true)
		case 2:
			p.write(&l, true) // an owner that did not know whether it had written it
		}
		p.open = append(p.open, &l)
	}
	must(p.t, p.writer.Flush(p.t.Context()))
}

// write writes a letter, or its tombstone.
func (p *pool) write(l *schemas.Letter, open bool) {
	m := kafka.Message{Topic: p.names().DLQ(), Partition: l.Origin.Partition, Key: []byte(l.Key())}
	if open {
		rec := l.Record()
		m.Value, m.Headers = rec.Value, rec.Headers
	}
	p.writer.Write(m, nil)
}

func (p *pool) letter() schemas.Letter {
	p.next++
	r := p.rand
	endpoint := fmt.Sprintf("ep_%d", r.IntN(poolEndpoints))
	now := time.Now().UTC().Truncate(time.Millisecond)
	d := schemas.Delivery{
		EndpointID: endpoint, Attempt: 9, Generation: pick(r, 0, 0, 0, 1, 2), Payload: make([]byte, r.IntN(300)),
		LastStatus: pick(r, 0, 404, 410, 500, 503), Error: "it did not work",
		Origin: schemas.Origin{Topic: "orders", TopicID: [4]byte{1, 2, 3, 4}, Offset: p.next,
			Partition: kafka.Partition([]byte(endpoint), int32(p.cfg.Topics.Partitions))},
		Event: schemas.Event{ID: "e" + strconv.FormatInt(p.next, 10), Source: "/test", SpecVersion: "1.0",
			Type:    pick(r, "order.created", "order.item.added", "order", "invoice.paid", "user"),
			Subject: pick(r, "", "order/1", "order/2", "cart/1"), Tenant: pick(r, "", "acme", "zulu")},
		Enqueued: now.Add(-time.Hour), FirstAttempt: now.Add(-50 * time.Minute),
	}
	for i := range d.Payload {
		d.Payload[i] = byte(r.Uint32())
	}
	if d.LastStatus == 0 {
		d.ErrorClass = pick(r, schemas.ClassTimeout, schemas.ClassDNS, "")
	}
	return schemas.NewLetter(d, pick(r, schemas.Reasons...), now.Add(-time.Duration(r.IntN(40))*time.Hour))
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// criterion is one condition of a query and, apart from any code of dlq, what it means.
type criterion struct {
	set   func(*dlq.Query)
	holds func(*schemas.Letter) bool
}

// query makes a random query and the letters that it selects, its limit aside. It has
// so many conditions that at most mostChosen are left, or as many as there are.
func (p *pool) query(now time.Time) (q dlq.Query, want []*schemas.Letter) {
	want = slices.Clone(p.open)
	all, least := p.criteria(now), p.rand.IntN(4)
	for i, at := range p.rand.Perm(len(all)) {
		if i >= least && len(want) <= mostChosen {
			break
		}
		all[at].set(&q)
		want = slices.DeleteFunc(want, func(l *schemas.Letter) bool { return !all[at].holds(l) })
	}
	if p.rand.IntN(4) == 0 {
		q.Limit = 1 + p.rand.IntN(mostChosen)
	}
	return q, want
}

func (p *pool) criteria(now time.Time) []criterion {
	r := p.rand
	endpoints := []string{fmt.Sprintf("ep_%d", r.IntN(poolEndpoints+1)), fmt.Sprintf("ep_%d", r.IntN(poolEndpoints+1))}
	tenant := pick(r, "acme", "zulu", "zulu", "none")
	types := []string{pick(r, "order*", "order.*", "*.added", "*r*", "or*item*ed", "*", "user"), pick(r, "invoice.paid", "none")}
	subjects := []string{pick(r, "order/*", "*/1", "cart/1"), "order/2"}
	reasons := []schemas.Reason{pick(r, schemas.Reasons...), pick(r, schemas.Reasons...), pick(r, schemas.Reasons...)}
	return append(p.fates(),
		criterion{func(q *dlq.Query) { q.Endpoints = endpoints }, func(l *schemas.Letter) bool { return slices.Contains(endpoints, l.EndpointID) }},
		criterion{func(q *dlq.Query) { q.Tenants = []string{tenant} }, func(l *schemas.Letter) bool { return l.Event.Tenant == tenant }},
		criterion{func(q *dlq.Query) { q.Types = types }, func(l *schemas.Letter) bool { return wild(types, l.Event.Type) }},
		criterion{func(q *dlq.Query) { q.Subjects = subjects }, func(l *schemas.Letter) bool { return wild(subjects, l.Event.Subject) }},
		criterion{
			func(q *dlq.Query) {
				for _, reason := range reasons {
					q.Reasons = append(q.Reasons, string(reason))
				}
			},
			func(l *schemas.Letter) bool { return slices.Contains(reasons, l.Reason) }},
		p.when(now), p.lives(), p.ids())
}

// wild reports whether a text is one of the patterns.
func wild(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$").MatchString(s)
	})
}

// fates are conditions on how the last attempt ended.
func (p *pool) fates() []criterion {
	status := pick(p.rand,
		criterion{func(q *dlq.Query) { q.Statuses = []string{"5xx", "404"} }, func(l *schemas.Letter) bool { return l.LastStatus >= 500 || l.LastStatus == 404 }},
		criterion{func(q *dlq.Query) { q.Statuses = []string{"410"} }, func(l *schemas.Letter) bool { return l.LastStatus == 410 }},
		criterion{func(q *dlq.Query) { q.Statuses = []string{"none", "4XX"} }, func(l *schemas.Letter) bool { return l.LastStatus < 500 }})
	class := pick(p.rand,
		criterion{func(q *dlq.Query) { q.ErrorClasses = []string{"timeout", "answered"} },
			func(l *schemas.Letter) bool { return l.ErrorClass == schemas.ClassTimeout || l.LastStatus != 0 }},
		criterion{func(q *dlq.Query) { q.ErrorClasses = []string{"dns"} }, func(l *schemas.Letter) bool { return l.ErrorClass == schemas.ClassDNS }})
	return []criterion{status, class}
}

// when is a condition on the time of death, half an hour from any.
func (p *pool) when(now time.Time) criterion {
	ago := time.Duration(p.rand.IntN(40))*time.Hour + 30*time.Minute
	if p.rand.IntN(2) == 0 {
		return criterion{func(q *dlq.Query) { q.Since = ago.String() }, func(l *schemas.Letter) bool { return now.Sub(l.DiedAt) <= ago }}
	}
	return criterion{func(q *dlq.Query) { q.Until = now.Add(-ago).Format(time.RFC3339Nano) }, func(l *schemas.Letter) bool { return now.Sub(l.DiedAt) > ago }}
}

func (p *pool) lives() criterion {
	if p.rand.IntN(2) == 0 {
		return criterion{func(q *dlq.Query) { q.Replayed = true }, func(l *schemas.Letter) bool { return l.Generation > 0 }}
	}
	return criterion{func(q *dlq.Query) { q.NotReplayed = true }, func(l *schemas.Letter) bool { return l.Generation == 0 }}
}

// ids names some letters, each by one of its ids.
func (p *pool) ids() criterion {
	named := map[*schemas.Letter]bool{}
	ids := []string{"nothing"}
	for range mostChosen / 2 {
		l := p.open[p.rand.IntN(len(p.open))]
		named[l] = true
		ids = append(ids, pick(p.rand, l.ID(), l.Key(), l.MessageID(), l.Event.ID))
	}
	return criterion{func(q *dlq.Query) { q.IDs = ids }, func(l *schemas.Letter) bool { return named[l] }}
}

// newest is what the limit of a filter leaves of the letters that it selects. Those
// written in the same millisecond are equally new, and any of them may be left out.
func (p *pool) newest(f dlq.Filter, of []*schemas.Letter) []*schemas.Letter {
	p.t.Helper()
	var times, all []int64
	chosen := map[string]bool{}
	_, err := p.store.List(p.t.Context(), f, func(e *dlq.Entry) error {
		chosen[e.Key()] = true
		times = append(times, e.Written.UnixMilli())
		return nil
	})
	must(p.t, err)
	limit := f.Limit
	f.Limit = 0
	for _, e := range p.flow.open(p.store, f) {
		all = append(all, e.Written.UnixMilli())
	}
	slices.Sort(all)
	slices.Reverse(all)
	left := slices.DeleteFunc(slices.Clone(of), func(l *schemas.Letter) bool { return !chosen[l.Key()] })
	if len(left) != limit || len(chosen) != limit || !slices.Equal(times, all[:limit]) {
		p.t.Fatalf("%+v: %d of %d are listed, of times %v; the newest are of %v", f, len(chosen), len(of), times, all)
	}
	return left
}

// disagrees says which verb does not select the letters that are wanted.
func (p *pool) disagrees(f dlq.Filter, want []*schemas.Letter) string {
	ctx := p.t.Context()
	keys, groups := make([]string, 0, len(want)), map[string]int64{}
	for _, l := range want {
		keys = append(keys, l.Key())
		groups[fmt.Sprint(l.Reason, l.LastStatus, l.ErrorClass, l.EndpointID)]++
	}
	slices.Sort(keys)
	if n, cover, err := p.store.Count(ctx, f); err != nil || !cover.Complete || n != int64(len(want)) {
		return fmt.Sprintf("count: %d %+v %v", n, cover, err)
	}
	if got := slices.Sorted(maps.Keys(p.flow.open(p.store, f))); !slices.Equal(got, keys) {
		return fmt.Sprintf("list: %q, want %q", got, keys)
	}
	sum, err := p.store.Summary(ctx, f)
	if err != nil || sum.Count != int64(len(want)) {
		return fmt.Sprintf("summary: %+v %v", sum, err)
	}
	for _, g := range sum.Groups {
		groups[fmt.Sprint(g.Reason, g.Status, g.ErrorClass, g.EndpointID)] -= g.Count
	}
	for group, off := range groups {
		if off != 0 {
			return fmt.Sprintf("summary: group %s is %d off", group, -off)
		}
	}
	sel, err := p.store.Select(ctx, f)
	if err != nil {
		return fmt.Sprintf("export: %v", err)
	}
	var file bytes.Buffer
	var exported []string
	if _, err = p.store.Export(ctx, &file, sel, f); err == nil {
		_, err = dlq.ReadExport(&file, func(rec schemas.Record) error { exported = append(exported, string(rec.Key)); return nil })
	}
	if slices.Sort(exported); err != nil || !slices.Equal(exported, keys) {
		return fmt.Sprintf("export: %q %v, want %q", exported, err, keys)
	}
	return ""
}

// replayed previews and replays what a filter selects, waits until the receiver has it,
// and says how many that are.
func (p *pool) replayed(f dlq.Filter, want []*schemas.Letter) int {
	p.t.Helper()
	sent := map[*schemas.Letter]bool{}
	for _, l := range want {
		if l.EndpointID != poolDisabled {
			sent[l] = true
			p.want(l.EndpointID, l.Event.Source, l.Event.ID, l.Payload)
		}
	}
	plan, err := p.store.Plan(p.t.Context(), dlq.Job{Kind: schemas.RunReplay, Filter: f})
	must(p.t, err)
	if skipped := plan.Skip[dlq.SkipDisabled]; plan.Total() != int64(len(want)) || plan.Write != int64(len(sent)) || skipped != plan.Total()-plan.Write {
		p.t.Fatalf("the preview of %+v says %d, %d of them to be written, %d disabled; want %d and %d", f, plan.Total(), plan.Write, skipped, len(want), len(sent))
	}
	rep, err := p.store.Execute(p.t.Context(), plan, p.runs, dlq.Options{})
	must(p.t, err)
	if rep.Run.Counts.Written != int64(len(sent)) {
		p.t.Fatalf("the replay of %+v says %+v, not %d", f, rep.Run.Counts, len(sent))
	}
	testkit.Eventually(p.t, time.Minute, func() string {
		c := testkit.Compare(p.produced, p.receiver.Log)
		if c.Corrupted > 0 || c.Unexpected > 0 { // it will not get better
			p.t.Fatalf("after the replay of %+v: %s", f, c)
		}
		if !c.Complete() {
			return c.String()
		}
		return ""
	})
	p.open = slices.DeleteFunc(p.open, func(l *schemas.Letter) bool { return sent[l] })
	return len(sent)
}
