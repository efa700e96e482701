package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/offsets"
	"github.com/milena-project/milena/schemas"
)

// chaos is a cluster in memory: the logs, a group coordinator that moves partitions
// about, receivers that change their mind, and processes that die.
type chaos struct {
	t    *testing.T
	rand *rand.Rand // only the test's goroutine and, under mu, whoever writes
	cfg  Config

	mu        sync.Mutex
	endpoints map[string]*Endpoint
	modes     map[string]mode
	logs      []*chaosLog // by partition
	first     map[string][]int
	posted    map[string]bool
	delivered map[string]bool
	finished  map[string]bool // attempts that were settled
	clean     bool            // partitions move and processes end, but nothing dies
	faults    []string
	calm      bool // writes are acknowledged at once, receivers are well
	trace     []string
	procs     int
}

// mode is what a receiver does now.
type mode uint8

const (
	modeWell mode = iota
	modeSlow
	modeFails
	modeHangs
	modeBusy
	modeRefuses
	modeGone
	modes
)

// chaosLog is one partition of deliveries, hold and health.
type chaosLog struct {
	deliveries []schemas.Record
	committed  int64
	above      map[int64]bool // done above it, as the commit's metadata says
	hold       []schemas.Record
	offset     int64           // of health
	claims     []schemas.Claim // that count
	health     map[string]schemas.Health
	owner      *chaosAssignment
}

// chaosProc is one process, from its start to its end.
type chaosProc struct {
	w       *chaos
	n       int
	d       *Dispatcher
	dead    atomic.Bool
	cut     atomic.Bool // from the coordinator: its lease is stale
	ended   chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	writes  map[string]*chaosQueue
	facts   map[int32]map[int64]bool
	adopted map[int32]map[int64]bool
	current map[int32]*chaosAssignment
	settled map[string]bool // attempts that came to an outcome here
	open    map[string]int
}

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	w := &chaos{
		t: t, rand: rand.New(rand.NewPCG(seed, 2)), //nolint:gosec // a seed that can be printed
		endpoints: map[string]*Endpoint{}, modes: map[string]mode{}, first: map[string][]int{},
		posted: map[string]bool{}, delivered: map[string]bool{}, finished: map[string]bool{},
	}
	for range 2 {
		w.logs = append(w.logs, &chaosLog{health: map[string]schemas.Health{}})
	}
	w.cfg = Config{
		MaxInFlight: 2 + w.rand.IntN(12), PartitionOffsets: 10 + w.rand.IntN(100), Unsettled: 2 + w.rand.IntN(30),
		QueuedBytes: int64(10+w.rand.IntN(100)) << 10, IdleLanes: 2, DuplicateAge: 1000 * time.Hour,
		LaneTime: time.Duration(1+w.rand.IntN(5)) * time.Second,
	}
	w.clean = seed%4 == 0
	if w.rand.IntN(3) == 0 {
		w.cfg.TenantShare, w.cfg.TenantRate = 0.5, float64(5+w.rand.IntN(20))
	}
	for i := range 6 {
		id := "e" + strconv.Itoa(i)
		u, _ := url.Parse("http://receiver.test/" + id)
		ep := &Endpoint{ID: id, Tenant: "t" + strconv.Itoa(i%3), State: schemas.StateEnabled, Version: 1, URL: u, Signer: w, Schedule: w, Timeout: 5 * time.Second}
		if i%2 == 0 {
			ep.MaxInFlight = 1
		}
		if i == 5 {
			ep.RateLimit = &schemas.RateLimit{Rate: 3, Burst: 2}
		}
		w.endpoints[id] = ep
	}
	return w
}

func (w *chaos) partition(id string) int32 { return int32(id[1]-'0') % 2 }

func (w *chaos) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

func (w *chaos) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

func (w *chaos) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(format, args...)
}

func (w *chaos) noteLocked(format string, args ...any) {
	w.trace = append(w.trace, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

func (w *chaos) fault(format string, args ...any) {
	w.noteLocked("FAULT "+format, args...)
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *chaos) produce(id string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.logs[w.partition(id)]
	for range n {
		w.append(l, schemas.Record{Key: []byte(id), Value: []byte(id + "/" + strconv.Itoa(len(l.deliveries)))})
	}
}

func (w *chaos) append(l *chaosLog, rec schemas.Record) {
	rec.Topic, rec.Offset, rec.Timestamp = "webhooks.deliveries", int64(len(l.deliveries)), time.Now()
	l.deliveries = append(l.deliveries, rec)
}

func (w *chaos) Sign(http.Header, string, time.Time, []byte) error { return nil }
func (w *chaos) Final(int) bool                                    { return false }

func (w *chaos) Next(_ *schemas.Delivery, now time.Time, after time.Duration) (time.Time, schemas.Reason) {
	return now.Add(max(20*time.Second, after)), ""
}

func (w *chaos) startProc() *chaosProc {
	w.procs++
	p := &chaosProc{
		w: w, n: w.procs, ended: make(chan struct{}), writes: map[string]*chaosQueue{}, facts: map[int32]map[int64]bool{},
		adopted: map[int32]map[int64]bool{}, current: map[int32]*chaosAssignment{}, settled: map[string]bool{}, open: map[string]int{},
	}
	p.ctx, p.cancel = context.WithCancel(w.t.Context())
	p.d = New(w.cfg, Deps{
		Transport: p, Classify: func(error) schemas.ErrorClass { return schemas.ClassConnect },
		Endpoints: p, Placement: p, Parker: p, DeadLetters: p, AttemptLog: p, Forwarder: p, Notifier: p, HoldLog: p,
	})
	go func() { defer close(p.ended); p.d.Run(p.ctx) }()
	return p
}

func (p *chaosProc) Endpoint(id string, _ *Endpoint) *Endpoint {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.w.endpoints[id]
}

func (p *chaosProc) Barrier(context.Context) error {
	if !p.w.isCalm() && p.w.roll(4) == 0 {
		return errors.New("no answer")
	}
	return nil
}

func (p *chaosProc) PartitionOf(id string) int32 { return p.w.partition(id) }

func (p *chaosProc) Send(r *http.Request, connected *atomic.Int64) (*http.Response, error) {
	w := p.w
	id := strings.TrimPrefix(r.URL.Path, "/")
	body, _ := io.ReadAll(r.Body)
	text := string(body)
	w.mu.Lock()
	w.noteLocked("p%d POST %s attempt %s", p.n, text, r.Header.Get("Milena-Attempt"))
	key := text + "#" + r.Header.Get("Milena-Attempt")
	if p.settled[key] {
		w.fault("process %d POSTed %s again, which it had settled", p.n, key)
	}
	if w.clean && w.finished[key] {
		w.fault("process %d POSTed %s again, which was settled, although nothing had died", p.n, key)
	}
	p.open[id]++
	if limit := w.endpoints[id].maxInFlight(); p.open[id] > limit {
		w.fault("%d requests open at %s, whose limit is %d", p.open[id], id, limit)
	}
	if !w.posted[text] {
		w.posted[text] = true
		n, _ := strconv.Atoi(text[strings.IndexByte(text, '/')+1:])
		w.first[id] = append(w.first[id], n)
	}
	m := w.modes[id]
	if m != modeRefuses {
		connected.Store(time.Now().UnixNano())
	}
	took := time.Duration(1+w.rand.IntN(30)) * time.Millisecond
	w.mu.Unlock()
	defer func() { w.mu.Lock(); p.open[id]--; w.mu.Unlock() }()
	switch m {
	case modeHangs:
		return hang(r)
	case modeSlow:
		took += 2 * time.Second
	}
	select {
	case <-time.After(took):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	switch m {
	case modeFails:
		return status(500), nil
	case modeGone:
		return status(410), nil
	case modeBusy:
		return status(429, "Retry-After", strconv.Itoa(2+w.roll(20))), nil
	case modeRefuses:
		return nil, errRefused
	}
	return status(200), nil
}

// chaosQueue is what a process has written to one topic's partition: it lands in
// order, and is acknowledged in order.
type chaosQueue struct {
	pending []chaosWrite
	running bool
}

type chaosWrite struct{ land, acked func() }

func (p *chaosProc) write(topic string, land, acked func()) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	q := p.writes[topic]
	if q == nil {
		q = &chaosQueue{}
		p.writes[topic] = q
	}
	q.pending = append(q.pending, chaosWrite{land, acked})
	if !q.running {
		q.running = true
		go p.run(q)
	}
}

func (p *chaosProc) run(q *chaosQueue) {
	w := p.w
	for {
		<-time.After(p.delay())
		w.mu.Lock()
		batch := q.pending
		q.pending = nil
		if p.dead.Load() || len(batch) == 0 {
			q.running = false
			w.mu.Unlock()
			return
		}
		for _, b := range batch {
			b.land()
		}
		w.mu.Unlock()
		<-time.After(p.delay())
		for _, b := range batch {
			if p.dead.Load() {
				break
			}
			b.acked()
		}
	}
}

func (p *chaosProc) delay() time.Duration {
	switch n := p.w.roll(60); {
	case p.w.isCalm():
		return time.Millisecond
	case n == 0:
		return time.Duration(p.w.roll(6000)) * time.Millisecond
	default:
		return time.Duration(p.w.roll(15)) * time.Millisecond
	}
}

func (p *chaosProc) Park(d *schemas.Delivery, acked func()) {
	headers, id, due := d.Headers(), d.EndpointID, d.NotBefore
	value := d.Payload
	p.write("retry", func() {
		time.AfterFunc(time.Until(due), func() {
			p.w.mu.Lock()
			defer p.w.mu.Unlock()
			h := append(slices.Clone(headers), schemas.Header{Key: schemas.HeaderReleased, Value: strconv.AppendInt(nil, time.Now().UnixMilli(), 10)})
			p.w.append(p.w.logs[p.w.partition(id)], schemas.Record{Key: []byte(id), Value: value, Headers: h})
		})
	}, acked)
}

func (p *chaosProc) Bury(l *schemas.Letter, acked func()) {
	text := string(l.Payload)
	reason := l.Reason
	p.write("dlq", func() {
		if reason != schemas.ReasonGone && reason != schemas.ReasonEndpointDisabled {
			p.w.fault("%s died: %s", text, reason)
		}
		p.w.noteLocked("p%d buried %s: %s", p.n, text, reason)
		p.w.delivered[text] = true
	}, acked)
}

func (p *chaosProc) LogAttempt(a *schemas.Attempt, acked func()) {
	id, outcome := a.EndpointID, a.Outcome
	body := id + "/" + strings.TrimSuffix(a.DeliveryID[strings.LastIndexByte(a.DeliveryID, '-')+1:], "."+id)
	if a.Outcome != schemas.OutcomeDuplicate {
		p.w.mu.Lock()
		key := body + "#" + strconv.Itoa(a.Number)
		p.settled[key], p.w.finished[key] = true, true
		p.w.mu.Unlock()
	}
	p.write("attempts", func() {
		p.w.noteLocked("p%d logged %s %s", p.n, body, outcome)
		if outcome == schemas.OutcomeDelivered {
			p.w.delivered[body] = true
		}
	}, acked)
}

func (p *chaosProc) Notify(_ *schemas.Notice, acked func())    { p.write("notices", func() {}, acked) }
func (p *chaosProc) Forward(d *schemas.Delivery, acked func()) { p.w.note("FORWARD %s", d.EndpointID) }

func (p *chaosProc) TakeOver(_ context.Context, part int32, owned func() bool) (Takeover, error) {
	w, l := p.w, p.w.logs[part]
	w.mu.Lock()
	end, epoch := int64(len(l.hold)), len(l.claims)
	w.mu.Unlock()
	if !owned() {
		return Takeover{}, errNotOwned
	}
	<-time.After(p.delay()) // a claim lands also when nobody waits for it any more
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead.Load() {
		return Takeover{}, context.Canceled
	}
	claim := schemas.Claim{Number: l.offset, HoldEnd: end}
	l.offset++
	if epoch != len(l.claims) {
		return Takeover{}, errNotOwned // another has claimed it since
	}
	l.claims = append(l.claims, claim)
	w.noteLocked("p%d claims partition %d: %d, hold ends %d, health %v", p.n, part, claim.Number, end, slices.Sorted(maps.Keys(l.health)))
	return Takeover{Claim: claim.Number, Claims: slices.Clone(l.claims), Health: maps.Clone(l.health)}, nil
}

func (p *chaosProc) Append(part int32, claim int64, d *schemas.Delivery, acked func(int64)) {
	l := p.w.logs[part]
	held := *d
	held.Claim = claim
	rec := schemas.Record{Topic: "webhooks.hold", Key: []byte(d.EndpointID), Value: d.Payload, Headers: held.Headers(), Timestamp: time.Now()}
	p.write("hold"+strconv.Itoa(int(part)), func() {
		rec.Offset = int64(len(l.hold))
		l.hold = append(l.hold, rec)
		p.w.noteLocked("p%d held %s at %d under %d", p.n, rec.Value, rec.Offset, claim)
	}, func() { acked(rec.Offset) })
}

func (p *chaosProc) WriteHealth(part int32, claim int64, id string, h *schemas.Health, acked func()) {
	l := p.w.logs[part]
	p.write("health"+strconv.Itoa(int(part)), func() {
		l.offset++
		next := int64(-1)
		if h != nil && h.Next != nil {
			next = *h.Next
		}
		p.w.noteLocked("p%d health of %s under %d: next %d, tombstone %v", p.n, id, claim, next, h == nil)
		switch last := l.claims[len(l.claims)-1].Number; {
		case claim != last: // ignored by readers
		case h == nil:
			delete(l.health, id)
		default:
			l.health[id] = *h
		}
	}, acked)
}

func (p *chaosProc) ReadHold(ctx context.Context, part int32, from int64, _ int) (HoldChunk, error) {
	<-time.After(p.delay())
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if ctx.Err() != nil || p.dead.Load() {
		return HoldChunk{}, context.Canceled
	}
	l := p.w.logs[part]
	c := HoldChunk{Next: min(int64(len(l.hold)), from+1+int64(p.w.rand.IntN(30)))}
	if from < c.Next {
		c.Records = slices.Clone(l.hold[from:c.Next])
	}
	return c, nil
}

var errNotOwned = errors.New("not owned")

// chaosAssignment is a Source, as internal/consume's assignments are.
type chaosAssignment struct {
	proc     *chaosProc
	above    map[int64]bool
	part     int32
	p        *Partition
	ctx      context.Context
	cancel   context.CancelFunc
	idle     chan struct{}
	gone     atomic.Bool
	tracker  *offsets.Tracker
	taken    map[int64]bool // and not answered
	returned []int64
}

func (w *chaos) assign(p *chaosProc, part int32) *chaosAssignment {
	w.mu.Lock()
	l := w.logs[part]
	a := &chaosAssignment{proc: p, part: part, idle: make(chan struct{}), tracker: offsets.NewTracker(l.committed), taken: map[int64]bool{}}
	a.ctx, a.cancel = context.WithCancel(p.ctx)
	l.owner, p.current[part], a.above = a, a, l.above
	for _, m := range []map[int32]map[int64]bool{p.facts, p.adopted} {
		if m[part] == nil {
			m[part] = map[int64]bool{}
		}
	}
	w.noteLocked("p%d is assigned partition %d from %d", p.n, part, l.committed)
	w.mu.Unlock()
	go a.run()
	return a
}

// run hands records over, as Kafka would.
func (a *chaosAssignment) run() {
	defer close(a.idle)
	p := a.proc.d.Assign(a.ctx, a.part, a)
	if p == nil {
		return
	}
	a.p = p
	for a.ctx.Err() == nil {
		if recs := a.next(); len(recs) > 0 {
			p.Take(a.ctx, recs)
			continue
		}
		pause := 10 * time.Millisecond
		if a.proc.w.isCalm() {
			pause = 500 * time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-a.ctx.Done():
		}
	}
}

func (a *chaosAssignment) next() []schemas.Record {
	w := a.proc.w
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.logs[a.part]
	var recs []schemas.Record
	give := func(offset int64) {
		a.taken[offset] = true
		recs = append(recs, l.deliveries[offset])
	}
	for _, offset := range a.returned {
		if a.tracker.Open(offset) {
			give(offset)
		}
	}
	a.returned = nil
	for n := 1 + w.rand.IntN(20); n > 0 && a.tracker.Next() < int64(len(l.deliveries)); n-- {
		offset := a.tracker.Next()
		a.tracker.Received(offset)
		switch {
		case a.proc.facts[a.part][offset] || a.above[offset]:
			a.tracker.Done(offset)
		case a.proc.adopted[a.part][offset]:
		default:
			give(offset)
		}
	}
	return recs
}

func (a *chaosAssignment) Done(offset int64) {
	w := a.proc.w
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(a.taken, offset)
	delete(a.proc.adopted[a.part], offset)
	a.proc.facts[a.part][offset] = true
	if now := a.proc.current[a.part]; now != nil {
		now.tracker.Done(offset)
	}
}

func (a *chaosAssignment) DoneHere(offset int64) {
	if a.gone.Load() {
		a.GiveUp(offset)
		return
	}
	w := a.proc.w
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(a.taken, offset)
	a.tracker.Done(offset)
}

func (a *chaosAssignment) GiveUp(offset int64) {
	w := a.proc.w
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(a.taken, offset)
	if !a.proc.adopted[a.part][offset] {
		return
	}
	delete(a.proc.adopted[a.part], offset)
	if now := a.proc.current[a.part]; now != nil {
		now.returned = append(now.returned, offset)
	}
}

func (a *chaosAssignment) Owned() bool                  { return !a.gone.Load() && !a.proc.cut.Load() }
func (a *chaosAssignment) FrozenSince(_ time.Time) bool { return false }

// commit is what the group allows its owner.
func (a *chaosAssignment) commit() {
	w := a.proc.w
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.logs[a.part]
	if l.owner != a || a.proc.dead.Load() || a.proc.cut.Load() {
		return
	}
	if mark := a.tracker.Watermark(); mark < l.committed {
		w.fault("partition %d: the commit would move back from %d to %d", a.part, l.committed, mark)
	} else {
		l.committed, l.above = mark, map[int64]bool{}
		for from, to := range a.tracker.EachDone {
			for ; from < to; from++ {
				l.above[from] = true
			}
		}
	}
}

// end takes the assignment away: with a drain, or at once.
func (a *chaosAssignment) end(drain time.Duration) {
	a.cancel()
	<-a.idle
	if a.p != nil {
		ctx, cancel := context.WithTimeout(context.Background(), drain)
		a.p.Drain(ctx)
		cancel()
	}
	a.commit()
	w := a.proc.w
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.logs[a.part]
	a.gone.Store(true)
	if l.owner == a {
		l.owner = nil
	}
	if a.proc.current[a.part] == a {
		delete(a.proc.current, a.part)
	}
	for offset := range a.taken {
		a.proc.adopted[a.part][offset] = true
	}
	w.noteLocked("p%d lets partition %d go at %d, %d open", a.proc.n, a.part, l.committed, len(a.taken))
}

// die ends a process without winding anything up.
func (p *chaosProc) die() {
	p.w.note("p%d dies", p.n)
	p.dead.Store(true)
	p.d.cancel(errors.New("crash"))
	for _, a := range p.assignments() {
		a.end(0)
	}
	p.cancel()
	<-p.ended
}

func (p *chaosProc) assignments() []*chaosAssignment {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return slices.Collect(maps.Values(p.current))
}
