//go:build kafka

package flowtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// A month that went badly: five million open letters, of 1 KB each after compression.
// MILENA_BENCH_LETTERS makes it another number.
type month struct {
	*night
	deliveries int64
	began      time.Time
	open       int64 // letters
	idle       int64 // bytes of memory that a command takes where there are no letters
}

const (
	monthLetters   = 5_000_000
	monthEndpoints = 41
	monthDays      = 20
	perLetter      = 32   // bytes of memory a letter that a command may take
	monthLag       = 5000 // deliveries that die between a death and what becomes of it
)

// wayToDie is one of those that a delivery of the month can die.
type wayToDie struct {
	reason schemas.Reason
	status int
	class  schemas.ErrorClass
	text   string
}

var waysToDie = [...]wayToDie{
	{schemas.ReasonExhausted, 503, "", "HTTP 503"},
	{schemas.ReasonExhausted, 500, "", "HTTP 500"},
	{schemas.ReasonExhausted, 0, schemas.ClassTimeout, "no answer within 15s"},
	{schemas.ReasonExhausted, 0, schemas.ClassConnect, "connection refused"},
	{schemas.ReasonExhausted, 0, schemas.ClassDNS, "no such host"},
	{schemas.ReasonRejected, 404, "", "HTTP 404"},
	{schemas.ReasonRejected, 422, "", "HTTP 422"},
	{schemas.ReasonGone, 410, "", "HTTP 410"},
	{schemas.ReasonExpired, 503, "", "HTTP 503"},
	{schemas.ReasonEndpointDisabled, 0, "", "disabled by its owner"},
	{schemas.ReasonBlockedAddress, 0, schemas.ClassBlockedAddress, "10.0.0.1 is private"},
}

func (w *wayToDie) String() string {
	class := string(w.class)
	if class == "" {
		class = "-"
	}
	return fmt.Sprintf("%s/%d/%s", w.reason, w.status, class)
}

// Of 200 deliveries 5 are discarded, 8 were replayed once and died again, 4 of them twice.
func lives(i int64) int {
	switch {
	case i%50 == 3:
		return 3
	case i%25 == 3:
		return 2
	}
	return 1
}

func discarded(i int64) bool { return i%40 == 7 }

// wayOf is how a delivery died in one of its lives: half of them as before.
func wayOf(i int64, life int) *wayToDie {
	return &waysToDie[(i/monthEndpoints+int64(life)*(i/50%2))%int64(len(waysToDie))]
}

func endpointOf(i int64) string { return fmt.Sprintf("ep-%d", i%monthEndpoints) }

// step is when the topic's step s was: one percent of the month is a month old and
// expires within a day, the rest is spread over its days.
func (m *month) step(s int64) time.Time {
	if old := m.deliveries / 100; s < old {
		return m.began.Add(-29*24*time.Hour - 12*time.Hour + time.Duration(s)*10*time.Millisecond)
	}
	span := s * monthDays * 86_400_000 / (m.deliveries + 4*monthLag)
	return m.began.Add(time.Duration(span)*time.Millisecond - monthDays*24*time.Hour)
}

// written is when the letter of a life came into the topic; no two are equal.
func (m *month) written(i int64, life int) time.Time {
	return m.step(i + 2*monthLag*int64(life)).Add(time.Duration(life) * time.Millisecond)
}

func (m *month) letter(i int64, life int, partition int32, fill []byte) schemas.Letter {
	way := wayOf(i, life)
	d := schemas.Delivery{EndpointID: endpointOf(i), Attempt: 9, Generation: life, LastStatus: way.status, ErrorClass: way.class, Error: way.text,
		Payload: fmt.Appendf(nil, `{"n":%d,"fill":"%s"}`, i, fill[:payloadOf(i)]),
		Origin:  schemas.Origin{Topic: m.names().Deliveries(), TopicID: [4]byte{1, 2, 3, 4}, Partition: partition, Offset: i},
		Event:   schemas.Event{ID: "evt-" + strconv.FormatInt(i, 10), Source: "/shop", Type: "order.created", SpecVersion: "1.0", ContentType: "application/json"}}
	at := m.written(i, life)
	d.Enqueued, d.FirstAttempt = at.Add(-time.Hour), at.Add(-time.Hour)
	if life > 0 {
		d.Extra = []schemas.Header{{Key: schemas.HeaderDiedOf, Value: []byte(wayOf(i, life-1).String())}}
	}
	return schemas.NewLetter(d, way.reason, at.Add(-20*time.Millisecond))
}

// payloadOf is the length of what fills a payload.
func payloadOf(i int64) int64 { return 700 + i%301 }

// write writes the month, each half of the partitions in the order of time.
func (m *month) write() {
	m.t.Helper()
	began := time.Now()
	const writers = 2
	var all sync.WaitGroup
	var mu sync.Mutex
	var letters, tombstones int64
	for w := range int32(writers) {
		cl := testkit.NewClient(m.t, m.cluster.brokers(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(1<<20),
			kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.ProducerLinger(100*time.Millisecond), kgo.MaxBufferedRecords(40_000))
		all.Go(func() {
			a, b := m.writeHalf(cl, func(p int32) bool { return p%writers == w })
			mu.Lock()
			letters, tombstones = letters+a, tombstones+b
			mu.Unlock()
		})
	}
	all.Wait()
	m.t.Logf("%d letters and %d tombstones written in %s", letters, tombstones, time.Since(began).Round(time.Second))
}

func (m *month) writeHalf(cl *kgo.Client, mine func(int32) bool) (letters, tombstones int64) {
	rng := rand.New(rand.NewPCG(1, 2))
	pool := make([]byte, 8<<20) // text that does not compress
	for i := range pool {
		pool[i] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[rng.IntN(64)]
	}
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			m.t.Errorf("a letter was not written: %v", err)
		}
	}
	put := func(i int64, life int, part int32, how string) {
		from := rng.IntN(len(pool) - 1100)
		l := m.letter(i, life, part, pool[from:])
		rec := l.Record()
		out := &kgo.Record{Topic: m.names().DLQ(), Partition: part, Key: rec.Key, Value: rec.Value, Timestamp: m.written(i, life)}
		if how != "" {
			tombstones++
			out.Value, out.Timestamp = nil, m.step(i+monthLag*int64(2*life+1))
			rec.Headers = []schemas.Header{{Key: schemas.HeaderTombstone, Value: []byte(how)}, {Key: schemas.HeaderRun, Value: []byte("run-1")}}
		} else {
			letters++
		}
		for _, h := range rec.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		cl.Produce(m.t.Context(), out, promise)
	}
	for s := range m.deliveries + 4*monthLag {
		for stage := range 5 {
			i := s - int64(stage)*monthLag
			if i < 0 || i >= m.deliveries {
				continue
			}
			part := kafka.Partition([]byte(endpointOf(i)), int32(m.cfg.Topics.Partitions))
			life := stage / 2
			switch {
			case !mine(part):
			case stage%2 == 0 && life < lives(i):
				put(i, life, part, "")
			case stage%2 == 1 && life < lives(i)-1:
				put(i, life, part, "replayed")
			case stage == 1 && discarded(i):
				put(i, life, part, "discarded")
			}
		}
	}
	if err := cl.Flush(m.t.Context()); err != nil {
		m.t.Error(err)
	}
	return letters, tombstones
}

// groups are those that a summary of what is open and wanted must have.
func (m *month) groups(wanted func(i int64, life int) bool) (groups map[string]*dlq.Group, count int64) {
	groups = map[string]*dlq.Group{}
	for i := range m.deliveries {
		life := lives(i) - 1
		if discarded(i) || wanted != nil && !wanted(i, life) {
			continue
		}
		count++
		way := wayOf(i, life)
		key := endpointOf(i) + " " + way.String()
		g := groups[key]
		died := m.written(i, life).Add(-20 * time.Millisecond).Truncate(time.Millisecond).UTC()
		if g == nil {
			g = &dlq.Group{First: died, Last: died}
			groups[key] = g
		}
		g.Count++
		g.Bytes += payloadOf(i) + int64(len(strconv.FormatInt(i, 10))+len(`{"n":,"fill":""}`))
		if died.Before(g.First) {
			g.First = died
		}
		if died.After(g.Last) {
			g.Last = died
		}
		if life > 0 {
			g.Replayed++
			if *wayOf(i, life-1) == *way {
				g.SameWay++
			}
		}
		if i+2*monthLag*int64(life) < m.deliveries/100 {
			g.Expiring++
		}
	}
	return groups, count
}

func readGroups(t *testing.T, text string) map[string]*dlq.Group {
	t.Helper()
	groups := map[string]*dlq.Group{}
	for dec := json.NewDecoder(strings.NewReader(text)); ; {
		g := new(dlq.Group)
		if err := dec.Decode(g); err == io.EOF {
			return groups
		} else if err != nil {
			t.Fatal(err)
		}
		groups[g.EndpointID+" "+(&wayToDie{g.Reason, g.Status, g.ErrorClass, ""}).String()] = g
	}
}

func TestSoakFiveMillionLettersInTheHandsOfAnSRE(t *testing.T) {
	needsBudget(t)
	f := newFlowOn(t, newStoppable(t)) // a broker of its own: its directory goes with the test
	f.cfg.Topics.Partitions, f.cfg.Prefix = 12, "m"+random()+"."
	f.makeTopics(false)
	m := &month{night: &night{flow: f, cli: build(t)}, deliveries: monthLetters * 40 / 39, began: time.Now().Truncate(time.Second)}
	if n, err := strconv.ParseInt(os.Getenv("MILENA_BENCH_LETTERS"), 10, 64); err == nil {
		m.deliveries = n * 40 / 39
	}
	m.prepare()
	m.write()
	m.seen("summary, all of it", m.summary)
	m.seen("count", m.counts)
	m.seen("list, the newest", m.newest)
	m.seen("list --since", m.recent)
	m.seen("list, all of it", m.list)
	m.seen("Ctrl-C", m.interrupted)
	m.seen("show", m.show)
	m.seen("export", m.export)
	m.seen("replay --dry-run", m.preview)
}

func (m *month) seen(name string, fn func(t *testing.T)) { m.t.Run(name, fn) }

// prepare registers the endpoints and lets nothing be deleted or compacted, and the
// letters' times be those of the month. What a command takes without letters is the
// base of what is judged.
func (m *month) prepare() {
	m.t.Helper()
	adm := kadm.NewClient(testkit.NewClient(m.t, m.cluster.brokers()))
	keep := strconv.FormatInt((60 * 24 * time.Hour).Milliseconds(), 10)
	var changes []kadm.AlterConfig
	for k, v := range map[string]string{"segment.ms": keep, "min.compaction.lag.ms": keep, "message.timestamp.type": "CreateTime"} {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: &v})
	}
	done, err := adm.AlterTopicConfigs(m.t.Context(), changes, m.names().DLQ())
	must(m.t, err)
	for _, r := range done {
		must(m.t, r.Err)
	}
	for i := range int64(monthEndpoints - 1) { // the last one is unknown
		ep := schemas.Endpoint{ID: endpointOf(i), URL: "https://example.com/", EventTypes: []string{"*"}, State: schemas.StateEnabled, Version: 1}
		if i == 0 {
			ep.State = schemas.StateDisabled
		}
		value, err := json.Marshal(ep)
		must(m.t, err)
		testkit.Produce(m.t, m.client, &kgo.Record{Topic: m.names().Endpoints(), Key: []byte(ep.ID), Value: value})
	}
	for _, verb := range []string{"summary", "list", "count"} {
		r := m.start("dlq", verb)
		must(m.t, r.wait())
		m.idle = max(m.idle, r.peak)
	}
}

// judged says what a command took, and demands that it stayed within the bound.
func (m *month) judged(t *testing.T, r *runner) {
	t.Helper()
	first := "-"
	if !r.out.first.IsZero() {
		first = r.out.first.Sub(r.began).Round(time.Millisecond).String()
	}
	each := float64(r.peak-m.idle) / float64(max(1, m.open))
	said := strings.Split(strings.TrimSpace(r.err.String()), "\n")
	t.Logf("%s: first output after %s, all after %s; read %d MiB; resident at most %d MiB, %d MiB of them without letters: %.1f bytes a letter; %d lines of stderr, the last: %s",
		strings.Join(r.cmd.Args[1:], " "), first, r.took.Round(time.Millisecond), r.read>>20, r.peak>>20, m.idle>>20, each, len(said), said[len(said)-1])
	if m.open >= monthLetters/2 && each > perLetter {
		t.Errorf("%.1f bytes a letter", each)
	}
}

func (m *month) summary(t *testing.T) {
	var want map[string]*dlq.Group
	want, m.open = m.groups(nil)
	r := m.start("dlq", "summary", "--json")
	must(t, r.wait())
	m.judged(t, r)
	got := readGroups(t, r.out.String())
	for key, w := range want {
		g := got[key]
		if g == nil {
			t.Errorf("%s is missing", key)
			continue
		}
		if g.Count != w.Count || g.Bytes != w.Bytes || !g.First.Equal(w.First) || !g.Last.Equal(w.Last) || g.Replayed != w.Replayed ||
			g.SameWay != w.SameWay || g.Expiring != w.Expiring {
			t.Errorf("%s: %+v, not %+v", key, *g, *w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d groups, not %d", len(got), len(want))
	}
	t.Logf("%d open letters in %d groups", m.open, len(want))
}

func (m *month) counts(t *testing.T) {
	for _, c := range []struct {
		args   []string
		wanted func(i int64, life int) bool
	}{
		{nil, nil},
		{[]string{"--status", "5xx", "--endpoint", "ep-7,ep-8"}, func(i int64, life int) bool {
			return wayOf(i, life).status >= 500 && (endpointOf(i) == "ep-7" || endpointOf(i) == "ep-8")
		}},
	} {
		r := m.start(append([]string{"dlq", "count"}, c.args...)...)
		must(t, r.wait())
		m.judged(t, r)
		if _, n := m.groups(c.wanted); r.out.String() != fmt.Sprintln(n) {
			t.Errorf("%s: %s, not %d", c.args, r.out.String(), n)
		}
	}
}

// since are the open letters written at a step or later, the newest first.
func (m *month) since(step int64) (ids []string) {
	type one struct {
		at time.Time
		id string
	}
	var all []one
	for i := max(0, step-4*monthLag); i < m.deliveries; i++ {
		life := lives(i) - 1
		if discarded(i) || m.written(i, life).Before(m.step(step)) {
			continue
		}
		l := m.letter(i, life, kafka.Partition([]byte(endpointOf(i)), int32(m.cfg.Topics.Partitions)), bytes.Repeat([]byte("x"), 1100))
		all = append(all, one{m.written(i, life), l.ID()})
	}
	slices.SortFunc(all, func(a, b one) int { return b.at.Compare(a.at) })
	for _, o := range all {
		ids = append(ids, o.id)
	}
	return ids
}

func idsOf(t *testing.T, text string) (ids []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		var row struct {
			ID string `json:"delivery_id"`
		}
		must(t, json.Unmarshal([]byte(line), &row))
		ids = append(ids, row.ID)
	}
	return ids
}

func (m *month) newest(t *testing.T) {
	want := m.since(m.deliveries + 3*monthLag)[:20]
	r := m.start("dlq", "list", "--limit", "20", "--json")
	must(t, r.wait())
	m.judged(t, r)
	if got := idsOf(t, r.out.String()); !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

func (m *month) recent(t *testing.T) {
	step := m.deliveries + 4*monthLag - m.deliveries/100 // the last percent
	want := m.since(step)
	since := m.step(step).Add(-20 * time.Millisecond).Truncate(time.Millisecond) // they died so much before they were written
	r := m.start("dlq", "list", "--since", since.UTC().Format(time.RFC3339Nano), "--json")
	must(t, r.wait())
	m.judged(t, r)
	t.Logf("%d letters", len(want))
	if got := idsOf(t, r.out.String()); !slices.Equal(got, want) {
		t.Errorf("%d letters, not %d, or in another order", len(got), len(want))
	}
	if size := m.deliveries * 1000; r.read > size/20 {
		t.Errorf("read %d MiB for a hundredth of %d MiB", r.read>>20, size>>20)
	}
}

func (m *month) list(t *testing.T) {
	r := &runner{}
	r.out.count = true
	m.startInto(r, "dlq", "list")
	must(t, r.wait())
	m.judged(t, r)
	if int64(r.out.lines) != m.open+1 {
		t.Errorf("%d lines", r.out.lines)
	}
}

// interrupted looks at what a summary shows that was ended when a third was read.
func (m *month) interrupted(t *testing.T) {
	r := m.start("dlq", "summary", "--json")
	testkit.Eventually(t, time.Minute, func() string {
		if read := procFigure(r.cmd.Process.Pid, "io", "rchar:"); read < m.deliveries*1000/3 {
			return fmt.Sprintf("%d bytes are read", read)
		}
		return ""
	})
	must(t, r.cmd.Process.Signal(os.Interrupt))
	signalled := time.Now()
	if r.wait() == nil || r.cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("exit code %d", r.cmd.ProcessState.ExitCode())
	}
	m.judged(t, r)
	t.Logf("ended %s after the signal", time.Since(signalled).Round(time.Millisecond))
	got := readGroups(t, r.out.String())
	all, _ := m.groups(nil)
	var shown int64
	for key, g := range got {
		shown += g.Count
		if g.Count > all[key].Count {
			t.Errorf("%s: %d, of %d that there are", key, g.Count, all[key].Count)
		}
	}
	_, after, said := strings.Cut(r.err.String(), "everything written since ")
	if !strings.Contains(r.err.String(), "only a part") || !said || shown == 0 || shown >= m.open {
		t.Fatalf("%d of %d letters are shown: %s", shown, m.open, r.err.String())
	}
	since, err := time.ParseInLocation("2006-01-02 15:04:05", after[:19], time.Local)
	must(t, err)
	least, n := m.groups(func(i int64, life int) bool { return !m.written(i, life).Before(since) })
	t.Logf("%d letters are shown, %d of them are those written since %s", shown, n, since)
	missing := 0
	for key, w := range least {
		if g := got[key]; g == nil || g.Count < w.Count {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d groups have fewer than were written since %s", missing, len(least), since)
	}
}

func (m *month) show(t *testing.T) {
	i := m.deliveries/2/50*50 + 3 // died three times
	l := m.letter(i, 2, kafka.Partition([]byte(endpointOf(i)), int32(m.cfg.Topics.Partitions)), bytes.Repeat([]byte("x"), 1100))
	for _, id := range []string{l.ID(), l.Event.ID} {
		r := m.start("dlq", "show", id, "--json")
		must(t, r.wait())
		m.judged(t, r)
		if got := idsOf(t, r.out.String()); !slices.Equal(got, []string{l.ID(), l.ID(), l.ID()}) {
			t.Errorf("%s: %q", id, got)
		}
	}
}

func (m *month) export(t *testing.T) {
	name := filepath.Join(t.TempDir(), "part.jsonl.gz")
	_, want := m.groups(func(i int64, life int) bool { return endpointOf(i) == "ep-7" && wayOf(i, life).status == 404 })
	r := m.start("dlq", "export", "--endpoint", "ep-7", "--status", "404", "--to", name)
	must(t, r.wait())
	m.judged(t, r)
	file, err := os.Open(name)
	must(t, err)
	defer file.Close()
	if end, err := dlq.Verify(file); err != nil || end.Letters != want || !end.Complete {
		t.Errorf("%+v, not %d letters: %v", end, want, err)
	}
}

func (m *month) preview(t *testing.T) {
	_, want := m.groups(nil)
	_, left := m.groups(func(i int64, _ int) bool { return i%monthEndpoints != 0 && i%monthEndpoints != monthEndpoints-1 })
	r := m.start("dlq", "replay", "--all", "--rate", "1000/s", "--dry-run", "--json")
	must(t, r.wait())
	m.judged(t, r)
	var plan dlq.View
	must(t, json.Unmarshal([]byte(r.out.String()), &plan))
	if plan.Matched != want || plan.Write != left {
		t.Errorf("%d of %d, not %d of %d", plan.Write, plan.Matched, left, want)
	}
}
