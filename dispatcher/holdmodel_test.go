package dispatcher

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// modelRules are the rules of hold, each of which can be dropped: the model must
// then fail, or the rule is not needed.
type modelRules struct {
	partOfBehind     bool // only the fresh record is appended, behind stays where it is
	behindTooSoon    bool // behind is served while records stand on hold unread
	doneAtAppend     bool // a held record is done when its append is acknowledged
	heldIsFact       bool // a held record's offset is kept as a fact after the assignment
	zombiesCount     bool // what an older claim appends after the next one is read
	zombieHealth     bool // health under an older claim is read
	keyForgottenLate bool // a key is forgotten when the append is acknowledged
	behindStays      bool // of two queued copies the one from deliveries stays
	eagerTombstone   bool // a tombstone is written while appends are under way
	nextIsLastDone   bool // next is behind the last settled record, not the watermark
	healthReadFirst  bool // health is read before the claim is written, not up to it
	anchorStays      bool // a tombstone does not end what the last next vouched for
	lateGiveUp       bool // a revoked assignment gives up what it was appending only at the ack
	copyIsDone       bool // hold read again under a new assignment is done while an attempt of the old one is open
	claimsForgotten  bool // an owner knows its own claim and the one before it only
	readUnanchored   bool // hold is read before health leads there
	everyClaim       bool // a claim counts although its writer did not know of the one before it
	anchorOnlyAhead  bool // an append that is acknowledged late, when next has passed it, waits for health
}

func TestHoldLosesNothingKeepsTheOrderAndStaysAlive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.IntRange(0, 1<<20)
		m := newHoldModel(modelRules{}, func(n int) int { return draw.Draw(t, "choice") % n })
		if fault := m.run(); fault != "" {
			t.Fatal(fault, m.trace)
		}
	})
}

func TestHoldModelOverManySeeds(t *testing.T) {
	seeds := uint64(6_000)
	if testing.Short() {
		seeds = 2_000
	}
	for seed := range seeds {
		if m, fault := runHoldModel(modelRules{}, seed); fault != "" {
			t.Fatalf("seed %d: %s\n%v", seed, fault, m.trace)
		}
	}
}

func runHoldModel(rules modelRules, seed uint64) (*holdModel, string) {
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a seed that can be printed
	m := newHoldModel(rules, r.IntN)
	return m, m.run()
}

// TestEveryRuleOfHoldIsNeeded drops one rule at a time.
func TestEveryRuleOfHoldIsNeeded(t *testing.T) {
	const most = 40_000
	for name, rules := range map[string]modelRules{
		"the whole of behind is appended":              {partOfBehind: true},
		"behind is served when hold is empty":          {behindTooSoon: true},
		"health{next} before done":                     {doneAtAppend: true},
		"held offsets are no facts":                    {heldIsFact: true},
		"the next claim voids a zombie's records":      {zombiesCount: true},
		"health under an older claim is ignored":       {zombieHealth: true},
		"a key is forgotten when holding is decided":   {keyForgottenLate: true},
		"of two queued copies the one from hold stays": {behindStays: true},
		"no tombstone while something is pending":      {eagerTombstone: true},
		"next is the watermark":                        {nextIsLastDone: true},
		"health is read up to the claim":               {healthReadFirst: true},
		"a tombstone ends the anchor":                  {anchorStays: true},
		"what was appending is given up at the end":    {lateGiveUp: true},
		"an open attempt of before keeps its record":   {copyIsDone: true},
		"hold is read when health leads there":         {readUnanchored: true},
		"a claim must know of the one before it":       {everyClaim: true},
		"an append that next has passed is done":       {anchorOnlyAhead: true},
		"claims are known down to the lowest next":     {claimsForgotten: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(most) {
				if _, fault := runHoldModel(rules, seed); fault != "" {
					t.Logf("without it seed %d: %s", seed, fault)
					return
				}
			}
			t.Errorf("%d runs without this rule found no fault", most)
		})
	}
}

// holdModel is one endpoint with max_in_flight 1 in one partition: the logs, the
// processes that may own the partition, and what was POSTed.
type holdModel struct {
	modelRules

	pick  func(n int) int
	trace []string

	produced, committed int
	hold                []modelHeld
	health              []modelHealth
	procs               [2]*modelProc
	owner               *modelOwner
	before              []*modelOwner // assignments that have ended; what they began goes on
	claiming            *modelClaim
	late                []*modelClaim // of processes that are cut off; they may land

	quiet     int   // one in so many choices falls on an assignment of before
	posts     []int // in the order of their begin
	settled   map[int]bool
	overtaken map[int]bool
}

type modelHeld struct{ id, claim int }

// modelHealth is a record of health: a claim, or an endpoint's.
type modelHealth struct {
	isClaim     bool
	epoch       int // of a claim
	claim, next int // next < 0: a tombstone
	holdEnd     int
}

type modelClaim struct {
	proc    *modelProc
	epoch   int
	holdEnd int
	read    int // health was read so far
}

// modelProc is a process's memory, which outlives its assignments.
type modelProc struct {
	keys     map[int]bool       // queued, in flight or POSTed
	facts    map[int]bool       // offsets of deliveries that are settled
	adopted  map[int]bool       // that an assignment of before still works on
	returned []int              // adopted, and given up
	open     map[int]*modelItem // by offset of hold: begun and not settled
}

type modelItem struct {
	id     int
	offset int // of hold; -1: from deliveries
	owner  *modelOwner
	heir   *modelOwner
}

type modelWrite struct {
	item   *modelItem // an append; nil: health
	next   int
	offset int // where it landed
}

// modelOwner is one assignment.
type modelOwner struct {
	proc          *modelProc
	lost          bool // it is no longer the owner, and begins nothing
	ended         bool // and knows it
	undecided     bool // the registry has not answered: records wait in behind
	claim         int
	claims        []modelHealth // as known to it
	read          int
	done          map[int]bool
	ahead, behind []*modelItem
	inFlight      *modelItem
	settling      []*modelItem
	unsent, sent  []modelWrite
	open          bool // the breaker

	held     bool
	taking   bool
	received map[int]bool // false: not settled
	base     int          // of the tracker; -1: none
	searched int
	last     int
	exact    int // below it an earlier owner appended
	pending  []*modelItem
	waiting  map[*modelItem]int
	anchor   int
	stands   bool
	writing  bool
	dirty    bool
}

func newHoldModel(rules modelRules, pick func(int) int) *holdModel {
	m := &holdModel{modelRules: rules, pick: pick, settled: map[int]bool{}, overtaken: map[int]bool{}}
	m.procs[0], m.procs[1] = newModelProc(), newModelProc()
	return m
}

func newModelProc() *modelProc {
	return &modelProc{keys: map[int]bool{}, facts: map[int]bool{}, adopted: map[int]bool{}, open: map[int]*modelItem{}}
}

const (
	modelRecords = 10
	modelSteps   = 220
)

// run makes random steps, then lets the world come to rest, and says what is wrong.
func (m *holdModel) run() string {
	m.quiet = []int{2, 2, 8, 30}[m.pick(4)]
	for range modelSteps {
		m.step(true)
	}
	m.quiet = 2
	for m.produced < modelRecords {
		m.produced++
	}
	for range 400 {
		if m.owner != nil {
			m.owner.open, m.owner.undecided = false, false
		}
		for range 40 {
			m.step(false)
		}
		if m.atRest() {
			return m.judge()
		}
	}
	return "it does not come to rest: " + m.state()
}

func (m *holdModel) atRest() bool {
	o := m.owner
	return o != nil && m.claiming == nil && m.committed == m.produced && !o.held && !o.stands && !o.dirty && !o.writing &&
		o.inFlight == nil && len(o.settling)+len(o.unsent)+len(o.sent) == 0
}

func (m *holdModel) judge() string {
	if _, next := m.view(len(m.health)); next >= 0 {
		return "health leads to hold although nothing is left there"
	}
	for id := range m.produced {
		if !m.settled[id] {
			return "record " + strconv.Itoa(id) + " is lost"
		}
	}
	seen, last := map[int]bool{}, -1
	for _, id := range m.posts {
		if seen[id] || m.overtaken[id] {
			continue
		}
		seen[id] = true
		if id < last {
			return "record " + strconv.Itoa(id) + " was POSTed for the first time after " + strconv.Itoa(last)
		}
		last = id
	}
	return ""
}

func (m *holdModel) note(what string, n int) { m.trace = append(m.trace, what+" "+strconv.Itoa(n)) }

func (m *holdModel) state() string {
	s := "committed " + strconv.Itoa(m.committed) + " of " + strconv.Itoa(m.produced)
	if o := m.owner; o != nil {
		s += ", held " + strconv.FormatBool(o.held) + ", behind " + strconv.Itoa(len(o.behind)) + ", ahead " + strconv.Itoa(len(o.ahead)) +
			", searched " + strconv.Itoa(o.searched) + ", last " + strconv.Itoa(o.last) + ", waiting " + strconv.Itoa(len(o.waiting))
	}
	return s
}

// step does one random thing that may happen now.
func (m *holdModel) step(trouble bool) {
	o := m.owner
	a := m.pick(100)
	switch {
	case a < 8:
		if m.produced < modelRecords && trouble {
			m.produced++
		}
	case a < 10:
		m.landLate()
	case a < 22:
		m.land(m.someone())
	case a < 36:
		m.ack(m.someone())
	case a < 43:
		m.settleOne(m.someone())
	case a < 47:
		m.finish(m.someone(), trouble && m.pick(5) == 0)
	case a < 49 && trouble:
		m.endOwner(m.pick(3))
	case a < 55:
		m.takeOver(trouble)
	case a < 61:
		m.tell(m.someone())
	case o == nil:
	case a < 71:
		m.intake(o)
	case a < 74 && trouble:
		if m.pick(3) == 0 {
			o.undecided = !o.undecided
		} else if o.open = !o.open; o.open {
			m.holdAll(o)
		}
	case a < 80:
		m.start(o)
	case a < 86:
		for m.committed < o.read && o.done[m.committed] {
			m.committed++
		}
	default:
		m.readHold(o)
	}
}

// someone is the owner or an assignment of before.
func (m *holdModel) someone() *modelOwner {
	n := len(m.before)
	if m.owner == nil || (n > 0 && m.pick(m.quiet) == 0) {
		if n == 0 {
			return nil
		}
		return m.before[m.pick(n)]
	}
	return m.owner
}

// endOwner ends the owner's assignment: its process dies, or has to let go and goes
// on, or is cut off and hears of it later.
func (m *holdModel) endOwner(how int) {
	o := m.owner
	if o == nil {
		return
	}
	m.owner, o.lost = nil, true
	switch how {
	case 0:
		m.note("crash", o.claim)
		m.before = slices.DeleteFunc(m.before, func(z *modelOwner) bool { return z.proc == o.proc })
		m.procs[slices.Index(m.procs[:], o.proc)] = newModelProc()
	case 1:
		m.before = append(m.before, o)
		m.letGo(o)
	default:
		m.note("cut off", o.claim)
		m.before = append(m.before, o)
	}
}

// letGo is what a process does when it hears that an assignment has ended.
func (m *holdModel) letGo(o *modelOwner) {
	if o.ended {
		return
	}
	m.note("revoke", o.claim)
	o.ended = true
	for _, it := range slices.Concat(o.ahead, o.behind) {
		delete(o.proc.keys, it.id)
		delete(o.proc.open, it.offset)
	}
	o.ahead, o.behind = nil, nil
	for _, it := range slices.Concat(o.settling, []*modelItem{o.inFlight}) {
		if it != nil && it.offset < 0 {
			o.proc.adopted[it.id] = true
		}
	}
	if m.lateGiveUp {
		for _, it := range o.pending {
			o.proc.adopted[it.id] = true
		}
	}
	o.waiting = nil
}

// takeOver begins or ends a claim.
func (m *holdModel) takeOver(trouble bool) {
	switch {
	case m.owner != nil:
	case m.claiming == nil:
		m.claiming = &modelClaim{proc: m.procs[m.pick(2)], epoch: 1 + m.lastEpoch(), holdEnd: len(m.hold), read: len(m.health)}
	case trouble && m.pick(6) == 0:
		m.note("cut off before its claim lands", m.claiming.epoch)
		m.late = append(m.late, m.claiming)
		m.claiming = nil
	default:
		c := m.claiming
		m.claiming = nil
		if !slices.Contains(m.procs[:], c.proc) {
			return
		}
		for _, z := range m.before {
			if z.proc == c.proc {
				m.letGo(z)
			}
		}
		number := len(m.health)
		m.health = append(m.health, modelHealth{isClaim: true, epoch: c.epoch, claim: number, holdEnd: c.holdEnd})
		if !m.lastClaimIs(number) {
			return // another has claimed it since: once more
		}
		o := &modelOwner{
			proc: c.proc, claim: number, read: m.committed, done: map[int]bool{}, received: map[int]bool{},
			base: -1, last: -1, waiting: map[*modelItem]int{}, anchor: -1,
		}
		for id := range c.proc.facts {
			o.done[id] = true
		}
		upTo := number
		if m.healthReadFirst {
			upTo = c.read
		}
		_, next := m.view(upTo)
		o.claims, _ = m.view(number + 1)
		if m.claimsForgotten && len(o.claims) > 1 {
			o.claims = o.claims[len(o.claims)-1:]
		}
		if next >= 0 {
			o.held, o.taking, o.stands, o.anchor = true, true, true, next
			o.base, o.searched, o.last, o.exact = next, next, c.holdEnd-1, c.holdEnd
			o.dirty = true
		}
		m.note("claim", number)
		m.owner = o
		m.leave(o)
	}
}

// view is what a reader of health knows up to an offset: the claims, and where the
// endpoint's records on hold begin.
func (m *holdModel) view(upTo int) (claims []modelHealth, next int) {
	last, epoch := -1, 0
	next = -1
	for _, h := range m.health[:upTo] {
		switch {
		case h.isClaim && h.epoch <= epoch && !m.everyClaim:
		case h.isClaim:
			claims = append(claims, h)
			last, epoch = h.claim, h.epoch
		case h.claim == last || m.zombieHealth:
			next = h.next
		}
	}
	return claims, next
}

func (m *holdModel) lastEpoch() int {
	claims, _ := m.view(len(m.health))
	if len(claims) == 0 {
		return 0
	}
	return claims[len(claims)-1].epoch
}

func (m *holdModel) lastClaimIs(number int) bool {
	claims, _ := m.view(len(m.health))
	return claims[len(claims)-1].claim == number
}

// landLate lets the claim of a process that has lost the partition reach its log.
func (m *holdModel) landLate() {
	if len(m.late) == 0 {
		return
	}
	c := m.late[0]
	m.late = m.late[1:]
	m.note("late claim", c.epoch)
	m.health = append(m.health, modelHealth{isClaim: true, epoch: c.epoch, claim: len(m.health), holdEnd: c.holdEnd})
}

// intake reads one record of deliveries.
func (m *holdModel) intake(o *modelOwner) {
	id := -1
	if n := len(o.proc.returned); n > 0 {
		id, o.proc.returned = o.proc.returned[0], o.proc.returned[1:]
		if id >= o.read {
			return // it comes in its turn
		}
	} else if o.read < m.produced {
		id = o.read
		o.read++
	}
	if id < 0 || o.done[id] || o.proc.adopted[id] {
		return
	}
	if o.proc.keys[id] {
		m.done(o, id)
		return
	}
	o.proc.keys[id] = true
	o.behind = append(o.behind, &modelItem{id: id, offset: -1, owner: o})
	switch {
	case o.undecided:
	case o.open, m.pick(6) == 0, o.held && o.taking && (o.searched < o.exact || m.pick(2) == 0):
		m.holdAll(o)
	case o.held:
		o.taking = false
	}
}

// done is a durable end of a record of deliveries: a fact of its process.
func (m *holdModel) done(o *modelOwner, id int) {
	o.proc.facts[id] = true
	delete(o.proc.adopted, id)
	o.done[id] = true
	if now := m.owner; now != nil && now.proc == o.proc {
		now.done[id] = true
	}
}

func (m *holdModel) holdAll(o *modelOwner) {
	if len(o.behind) == 0 || o.lost {
		return
	}
	o.held, o.taking = true, true
	moved := o.behind
	o.behind = nil
	if m.partOfBehind {
		o.behind, moved = moved[:len(moved)-1:len(moved)-1], moved[len(moved)-1:]
	}
	for _, it := range moved {
		if !m.keyForgottenLate {
			delete(o.proc.keys, it.id)
		}
		if slices.Contains(m.posts, it.id) {
			m.overtaken[it.id] = true
		}
		o.pending = append(o.pending, it)
		o.unsent = append(o.unsent, modelWrite{item: it})
	}
}

// oldest takes the oldest write to one of the two topics.
func (m *holdModel) oldest(ws *[]modelWrite) modelWrite {
	health := m.pick(2) == 0
	i := max(0, slices.IndexFunc(*ws, func(w modelWrite) bool { return (w.item == nil) == health }))
	w := (*ws)[i]
	*ws = slices.Delete(*ws, i, i+1)
	return w
}

// land lets a write reach its log.
func (m *holdModel) land(o *modelOwner) {
	if o == nil || len(o.unsent) == 0 {
		return
	}
	w := m.oldest(&o.unsent)
	if w.item != nil {
		w.offset = len(m.hold)
		m.hold = append(m.hold, modelHeld{w.item.id, o.claim})
		m.note("landed", w.item.id)
		if o.base < 0 && m.keyForgottenLate {
			o.base, o.searched = w.offset, w.offset
		}
		if m.keyForgottenLate {
			o.last = max(o.last, w.offset) // a reader that is faster than the ack
		}
	} else {
		m.health = append(m.health, modelHealth{claim: o.claim, next: w.next})
		m.note("health", w.next)
	}
	o.sent = append(o.sent, w)
}

// ack tells a writer of its oldest write.
func (m *holdModel) ack(o *modelOwner) {
	if o == nil || len(o.sent) == 0 {
		return
	}
	w := m.oldest(&o.sent)
	switch {
	case w.item == nil:
		m.told(o, w.next)
	case o.ended:
		if m.lateGiveUp && o.proc.adopted[w.item.id] {
			delete(o.proc.adopted, w.item.id)
			o.proc.returned = append(o.proc.returned, w.item.id)
		}
	default:
		m.appended(o, w.item, w.offset)
	}
}

func (m *holdModel) appended(o *modelOwner, it *modelItem, offset int) {
	o.pending = slices.DeleteFunc(o.pending, func(p *modelItem) bool { return p == it })
	if m.keyForgottenLate {
		delete(o.proc.keys, it.id)
	}
	o.held = true
	if o.base < 0 {
		o.base, o.searched = offset, offset
	}
	o.last = max(o.last, offset)
	if o.anchor >= 0 && (o.anchor <= offset || !m.anchorOnlyAhead) {
		m.doneHere(o, it.id)
		return
	}
	if m.doneAtAppend {
		m.doneHere(o, it.id)
	}
	o.waiting[it] = offset
	o.dirty = true
}

// doneHere ends a record's time in deliveries for as long as the assignment lasts.
func (m *holdModel) doneHere(o *modelOwner, id int) {
	o.done[id] = true
	if m.heldIsFact {
		o.proc.facts[id] = true
	}
}

func (m *holdModel) watermark(o *modelOwner) int {
	next, lastDone := o.base, -1
	for offset := range o.received {
		next = max(next, offset+1)
	}
	for offset, settled := range o.received {
		if settled {
			lastDone = max(lastDone, offset)
		} else {
			next = min(next, offset)
		}
	}
	if m.nextIsLastDone && lastDone >= 0 {
		return lastDone + 1
	}
	return next
}

func (m *holdModel) tell(o *modelOwner) {
	if o == nil || !o.dirty || o.writing || o.ended {
		return
	}
	o.dirty = false
	next := -1
	if o.held && o.base >= 0 {
		next = m.watermark(o)
	}
	if next < 0 {
		if !m.anchorStays {
			o.anchor = -1
		}
		if !o.stands {
			return
		}
	}
	o.stands, o.writing = next >= 0, true
	o.unsent = append(o.unsent, modelWrite{next: next})
}

func (m *holdModel) told(o *modelOwner, next int) {
	o.writing = false
	if next >= 0 || !m.anchorStays {
		o.anchor = next
	}
	if o.ended {
		return
	}
	if next >= 0 {
		for it, offset := range o.waiting {
			if next <= offset || !m.anchorOnlyAhead {
				m.doneHere(o, it.id)
				delete(o.waiting, it)
			}
		}
	}
	if len(o.waiting) > 0 {
		o.dirty = true
	}
	m.leave(o)
}

// leave ends the held state when nothing is left.
func (m *holdModel) leave(o *modelOwner) {
	if !o.held || o.searched <= o.last || len(o.ahead) > 0 || len(o.waiting) > 0 || (len(o.pending) > 0 && !m.eagerTombstone) {
		return
	}
	if o.base < 0 && len(o.pending) > 0 {
		return
	}
	for _, settled := range o.received {
		if !settled {
			return
		}
	}
	o.held, o.base, o.last, o.dirty = false, -1, -1, true
	clear(o.received)
}

func (m *holdModel) start(o *modelOwner) {
	if o.inFlight != nil || o.open || o.undecided {
		return
	}
	switch {
	case len(o.ahead) > 0:
		o.inFlight, o.ahead = o.ahead[0], o.ahead[1:]
	case o.held && (len(o.pending) > 0 || (o.base >= 0 && o.searched <= o.last)) && !m.behindTooSoon:
		return
	case len(o.behind) > 0:
		o.inFlight, o.behind = o.behind[0], o.behind[1:]
	default:
		return
	}
	m.note("POST", o.inFlight.id)
	m.posts = append(m.posts, o.inFlight.id)
}

// finish ends the attempt in flight: its writes begin, or it is interrupted.
func (m *holdModel) finish(o *modelOwner, interrupted bool) {
	if o == nil || o.inFlight == nil {
		return
	}
	it := o.inFlight
	o.inFlight = nil
	if !interrupted {
		o.settling = append(o.settling, it)
		return
	}
	m.note("interrupted", it.id)
	switch {
	case o.ended:
		delete(o.proc.keys, it.id)
		if it.offset < 0 {
			delete(o.proc.adopted, it.id)
			o.proc.returned = append(o.proc.returned, it.id)
			return
		}
		delete(o.proc.open, it.offset)
		if h := it.heir; h != nil && h.held {
			h.searched = min(h.searched, it.offset)
		}
	case it.offset >= 0:
		o.ahead = slices.Insert(o.ahead, 0, it)
	default:
		o.behind = slices.Insert(o.behind, 0, it)
	}
}

// settleOne acknowledges the writes of one attempt, in any order.
func (m *holdModel) settleOne(o *modelOwner) {
	if o == nil || len(o.settling) == 0 {
		return
	}
	i := m.pick(len(o.settling))
	it := o.settling[i]
	o.settling = slices.Delete(o.settling, i, i+1)
	m.settled[it.id] = true
	if it.offset < 0 {
		m.done(o, it.id)
		return
	}
	delete(o.proc.open, it.offset)
	for _, h := range []*modelOwner{it.owner, it.heir} {
		if h != nil && !h.ended && h.held {
			h.received[it.offset] = true
			h.dirty = true
			m.leave(h)
		}
	}
}

func (m *holdModel) readHold(o *modelOwner) {
	if !o.held || o.base < 0 || o.searched > o.last || o.open || o.undecided || (o.anchor < 0 && !m.readUnanchored) {
		return
	}
	for range 1 + m.pick(4) {
		if o.searched >= len(m.hold) { // it may be faster than the acks
			break
		}
		offset := o.searched
		o.searched++
		m.ingest(o, offset)
	}
	m.leave(o)
}

func (m *holdModel) ingest(o *modelOwner, offset int) {
	rec := m.hold[offset]
	settled, before := o.received[offset]
	if before && settled {
		return
	}
	o.received[offset] = false
	if !m.counts(o, offset, rec.claim) {
		o.received[offset] = true
		return
	}
	if open := o.proc.open[offset]; open != nil && !m.copyIsDone {
		if open.owner != o {
			open.heir = o
		}
		return
	}
	it := &modelItem{id: rec.id, offset: offset, owner: o}
	if o.proc.keys[rec.id] {
		i := slices.IndexFunc(o.behind, func(b *modelItem) bool { return b.id == rec.id })
		if i < 0 || m.behindStays {
			o.received[offset] = true
			return
		}
		m.done(o, rec.id)
		o.behind = slices.Delete(o.behind, i, i+1)
	}
	o.proc.keys[rec.id] = true
	o.proc.open[offset] = it
	o.ahead = append(o.ahead, it)
}

// counts reports whether a record of hold lies before the end of hold that the
// claim after its own has read.
func (m *holdModel) counts(o *modelOwner, offset, claim int) bool {
	for _, c := range o.claims {
		if c.claim > claim {
			return offset < c.holdEnd || m.zombiesCount
		}
	}
	return true
}
