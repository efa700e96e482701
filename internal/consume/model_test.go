package consume

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/milena-project/milena/internal/offsets"
	"github.com/milena-project/milena/schemas"
)

// model is one partition, the group coordinator, this process (the code under test)
// and another member of the group that owns the partition whenever we do not want it.
type model struct {
	log       []int64 // the offsets that exist
	committed int64
	metadata  string
	gen       int32

	own    *ownership
	part   Partition
	a      *Assignment // ours; nil while we do not own it
	cursor int64       // of our polls

	flying  map[int64]*Assignment // begun by this process, not answered
	here    map[int64]bool        // settled by this process
	settled map[int64]bool        // settled by anybody, ever
	known   map[int64]bool        // what the commit's metadata told this process when it began
	brief   map[int64]bool        // done here by the assignment that we have, and in no commit yet
	limbo   map[int64]bool        // the same of one that ended: void once the partition has an owner again

	commit struct { // one commit at a time is on its way
		req    *kmsg.OffsetCommitRequest
		chosen map[Partition]*Assignment
		sent   map[Partition]snapshot
		filled bool
	}
	handed, adopted, returned, refused int
}

var modelID = [16]byte{7}

func newModel() *model {
	m := &model{part: Partition{testTopic, 0}, settled: make(map[int64]bool)}
	m.restart()
	return m
}

func (m *model) restart() {
	cfg := Config{Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	m.own = newOwnership(&cfg, newLease(cfg.SessionTimeout, cfg.Logger), func() {})
	m.a = nil
	m.flying, m.here, m.known = make(map[int64]*Assignment), make(map[int64]bool), make(map[int64]bool)
	for o := range m.brief {
		delete(m.settled, o) // it died with the assignment
	}
	m.brief, m.limbo = make(map[int64]bool), make(map[int64]bool)
	m.commit.req = nil
}

// acquire: the group gives us the partition.
func (m *model) acquire(t *rapid.T) {
	if m.a != nil {
		return
	}
	m.gen++
	clear(m.limbo)
	m.a = m.own.assign(m.part)
	m.a.positioned, m.a.armed = true, true
	settled, foreign := decodeMetadata(m.metadata, modelID, m.committed)
	if foreign.Warn() {
		t.Fatalf("metadata of %d is foreign: %s", m.committed, foreign)
	}
	m.a.led.position(m.a, modelID, m.committed, m.committed, settled)
	for _, o := range m.log {
		if settled.Has(o) {
			if !m.settled[o] {
				t.Fatalf("the metadata says that %d is settled", o)
			}
			m.known[o] = true
		}
	}
	m.cursor = m.committed
}

func (m *model) poll(t *rapid.T) {
	if m.a == nil {
		return
	}
	var recs []schemas.Record
	n := rapid.IntRange(1, 20).Draw(t, "records")
	for _, o := range m.log {
		if o >= m.cursor && len(recs) < n {
			recs = append(recs, schemas.Record{Offset: o})
		}
	}
	if len(recs) == 0 {
		return
	}
	m.cursor = recs[len(recs)-1].Offset + 1
	m.a.led.receive(m.a, recs, func(int) bool { return false }, &m.own.limits)
	m.adopted = max(m.adopted, len(m.a.adopted))
}

func (m *model) take(t *rapid.T) {
	if m.a == nil {
		return
	}
	recs, _ := m.a.led.next(m.a)
	for _, r := range recs {
		switch {
		case m.here[r.Offset]:
			t.Fatalf("offset %d was settled by this process and is handed over again", r.Offset)
		case m.known[r.Offset]:
			t.Fatalf("offset %d is settled by the metadata and is handed over", r.Offset)
		case m.flying[r.Offset] != nil:
			t.Fatalf("offset %d is handed over twice", r.Offset)
		}
		m.flying[r.Offset] = m.a
		m.handed++
	}
}

func (m *model) pick(t *rapid.T) (int64, *Assignment) {
	if len(m.flying) == 0 {
		return -1, nil
	}
	o := rapid.SampledFrom(slices.Sorted(maps.Keys(m.flying))).Draw(t, "offset")
	return o, m.flying[o]
}

func (m *model) done(t *rapid.T) {
	for range rapid.IntRange(1, 10).Draw(t, "times") {
		o, a := m.pick(t)
		if a == nil {
			return
		}
		delete(m.flying, o)
		m.here[o], m.settled[o] = true, true
		a.Done(o)
	}
}

// doneHere: as long as the assignment lasts, and for good once a commit tells of it.
func (m *model) doneHere(t *rapid.T) {
	o, a := m.pick(t)
	if a == nil {
		return
	}
	delete(m.flying, o)
	if a == m.a {
		m.settled[o], m.brief[o] = true, true
	}
	a.DoneHere(o)
}

// giveUp: only what belongs to an assignment that closes may be given up.
func (m *model) giveUp(t *rapid.T) {
	o, a := m.pick(t)
	if a == nil || a.ctx.Err() == nil {
		return
	}
	delete(m.flying, o)
	a.GiveUp(o)
	m.returned++
}

// A commit is made (choose), stamped with the generation of that moment, filled in and
// arrives; anything may happen between any two of them.
func (m *model) commitChoose(*rapid.T) {
	_, chosen, offsets := m.own.choose(nil)
	if m.commit.req != nil || len(chosen) == 0 {
		return
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Generation = -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = testTopic
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Offset = offsets[testTopic][0].Offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	m.commit.req, m.commit.chosen, m.commit.sent = req, chosen, make(map[Partition]snapshot)
	m.commit.filled = false
}

func (m *model) commitStamp(*rapid.T) {
	if r := m.commit.req; r != nil && r.Generation < 0 {
		r.Generation = m.gen
	}
}

func (m *model) commitFill(*rapid.T) {
	if r := m.commit.req; r != nil && r.Generation >= 0 && !m.commit.filled {
		m.commit.filled = true
		if m.own.fill(r, m.commit.chosen, m.commit.sent) != nil {
			m.commit.req = nil
		}
	}
}

func (m *model) commitArrive(t *rapid.T) {
	r := m.commit.req
	if r == nil || !m.commit.filled {
		return
	}
	m.commit.req = nil
	if r.Generation != m.gen {
		m.refused++
		return
	}
	p := r.Topics[0].Partitions[0]
	m.accept(t, p.Offset, *p.Metadata)
	m.commit.chosen[m.part].led.acknowledged(m.commit.chosen[m.part], m.commit.sent[m.part])
}

// accept is the coordinator, with invariants 1 and 3.
func (m *model) accept(t *rapid.T, offset int64, metadata string) {
	if offset < m.committed {
		t.Fatalf("commit moves back from %d to %d", m.committed, offset)
	}
	told, _ := decodeMetadata(metadata, modelID, offset)
	for _, brief := range []map[int64]bool{m.brief, m.limbo} {
		for o := range brief {
			if o < offset || told.Has(o) {
				delete(brief, o) // from now on it is for good
				m.settled[o] = true
			}
		}
	}
	for _, o := range m.log {
		if o >= m.committed && o < offset && !m.settled[o] {
			t.Fatalf("commit of %d passes %d, which is not settled", offset, o)
		}
	}
	m.committed, m.metadata = offset, metadata
}

func (m *model) wholeCommit(t *rapid.T) {
	if m.commit.req != nil {
		return // it waits for the one that is on its way
	}
	m.commitChoose(t)
	m.commitStamp(t)
	m.commitFill(t)
	m.commitArrive(t)
}

// revoke: close, then drain (other actions, before), commit or fail to, let go.
func (m *model) closing(*rapid.T) {
	if m.a != nil {
		m.a.led.close(m.a)
	}
}

func (m *model) revoke(t *rapid.T) {
	if m.a == nil {
		return
	}
	m.a.led.close(m.a)
	if m.commit.req == nil && rapid.Bool().Draw(t, "commits") {
		m.wholeCommit(t)
	}
	m.letGo()
}

func (m *model) lose(*rapid.T) {
	if m.a != nil {
		m.letGo()
	}
}

func (m *model) letGo() {
	m.own.end([]*Assignment{m.a}, false)
	m.a = nil
	for o := range m.brief {
		delete(m.settled, o)
		m.limbo[o] = true
	}
	clear(m.brief)
}

// other: another member owns the partition for a while. It starts from the commit,
// settles some, commits with metadata of its own.
func (m *model) other(t *rapid.T) {
	if m.a != nil {
		return
	}
	m.gen++
	clear(m.limbo)
	tr := offsets.NewTracker(m.committed)
	settled, _ := decodeMetadata(m.metadata, modelID, m.committed)
	n := rapid.IntRange(0, 30).Draw(t, "records")
	for _, o := range m.log {
		if o < m.committed || n == 0 {
			continue
		}
		n--
		tr.Received(o)
		if settled.Has(o) || rapid.IntRange(0, 3).Draw(t, "settles") > 0 {
			tr.Done(o)
			m.settled[o] = true
		}
	}
	m.accept(t, tr.Watermark(), encodeMetadata(modelID, tr, MaxMetadata))
}

func (m *model) produce(t *rapid.T) {
	next := int64(0)
	if n := len(m.log); n > 0 {
		next = m.log[n-1] + 1
	}
	for range rapid.IntRange(1, 30).Draw(t, "records") {
		next += rapid.SampledFrom([]int64{0, 0, 0, 0, 1, 70}).Draw(t, "gap")
		m.log = append(m.log, next)
		next++
	}
}

// crash: a new process knows what the commit says, and nothing else.
func (m *model) crash(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "dies") == 0 {
		m.restart()
	}
}

// settleAll: when everything that is begun is answered, nothing is left behind.
func (m *model) settleAll(t *rapid.T) {
	m.commit.req = nil
	if m.a != nil && m.a.ctx.Err() != nil {
		m.letGo()
	}
	m.acquire(t)
	for range 10_000 {
		m.poll(t)
		m.take(t)
		for o, a := range m.flying {
			delete(m.flying, o)
			if a != m.a && rapid.Bool().Draw(t, "gives up") {
				a.GiveUp(o)
				continue
			}
			m.here[o], m.settled[o] = true, true
			a.Done(o)
		}
		if n := len(m.log); n == 0 || m.a.led.tracker() == m.log[n-1]+1 {
			break
		}
	}
	m.wholeCommit(t)
	for _, o := range m.log {
		if !m.settled[o] {
			t.Fatalf("offset %d is lost", o)
		}
		if o >= m.committed {
			t.Fatalf("the commit is stuck at %d, below %d", m.committed, o)
		}
	}
}

func (l *ledger) tracker() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current.tracker.Watermark()
}

func TestNothingIsLostRepeatedOrCommittedBackInTheModel(t *testing.T) {
	var handed, adopted, returned, refused int
	life := func(t *rapid.T) {
		m := newModel()
		defer func() {
			handed, adopted = handed+m.handed, adopted+m.adopted
			returned, refused = returned+m.returned, refused+m.refused
		}()
		steps := []func(*rapid.T){
			m.produce, m.acquire, m.acquire, m.other, m.poll, m.poll, m.take, m.take, m.done, m.done, m.doneHere, m.giveUp, m.giveUp,
			m.commitChoose, m.commitChoose, m.commitStamp, m.commitStamp, m.commitFill, m.commitFill, m.commitArrive,
			m.wholeCommit, m.closing, m.revoke, m.lose, m.crash,
		}
		for range rapid.IntRange(20, 200).Draw(t, "steps") {
			rapid.SampledFrom(steps).Draw(t, "step")(t)
		}
		m.settleAll(t)
	}
	for range 20 {
		rapid.Check(t, life)
	}
	t.Logf("%d handed over, %d adopted at a time in all, %d given up, %d late commits refused", handed, adopted, returned, refused)
	if handed == 0 || adopted == 0 || returned == 0 || refused == 0 {
		t.Error("the model did not reach what it is about")
	}
}
