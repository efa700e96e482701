// Package lag tells what is left to do in an installation, from Kafka alone: offsets,
// commit metadata, and a few fetched records of each partition. It works when every
// process is dead, joins no group, commits nothing and writes nothing. cmd/milena
// shows it.
//
// Plain consumer-group lag lies here: what waits in a tier looks like lag, what is done
// above the watermark looks unfinished, what is on hold looks like progress, and a
// transaction's marker looks like a record.
package lag

import (
	"fmt"
	"strings"
	"time"

	"github.com/milena-project/milena/retrytopics"
)

// State is what is the matter with a partition, or with the worst one of a topic.
type State string

// The states, from the least to the most urgent.
const (
	OK         State = "OK"
	Waiting    State = "WAITING"
	Behind     State = "BEHIND"
	Stalled    State = "STALLED"
	NoCommit   State = "NO COMMIT"
	Unassigned State = "UNASSIGNED"
	NoMembers  State = "NO MEMBERS"
	Rewound    State = "REWOUND"
)

// Definition is a state and what it means.
type Definition struct {
	State State
	Means string
	Watch bool // it takes two looks
}

// Definitions are all states, from the least to the most urgent: of those that hold
// a partition has the last.
var Definitions = []Definition{
	{OK, fmt.Sprintf("nothing is ready that has been so for more than %s", behindAfter), false},
	{Waiting, "records wait in a tier for their time; none is overdue", false},
	{Behind, fmt.Sprintf("a record has been ready for more than %s and is not settled; in a tier: overdue", behindAfter), false},
	{Stalled, fmt.Sprintf("BEHIND, and nothing of it was settled for %s", stalledAfter), true},
	{NoCommit, "there are records, and no commit that lies in the log: nothing is read until --initial-offset decides", false},
	{Unassigned, "the group has members, and none of them owns the partition", false},
	{NoMembers, "the group has no member: no process is running", false},
	{Rewound, "the commit has gone back since the watch began: what was settled is done again", true},
}

const (
	behindAfter  = retrytopics.OverdueAfter
	stalledAfter = time.Minute // the longest timeout that an endpoint can have
)

var urgency = func() map[State]int {
	u := map[State]int{}
	for i, d := range Definitions {
		u[d.State] = i
	}
	return u
}()

// Worse returns the more urgent of two states.
func (s State) Worse(o State) State {
	if urgency[o] > urgency[s] {
		return o
	}
	return s
}

// Partition is what is left to do of one partition of a topic that a group reads.
type Partition struct {
	Partition  int32      `json:"partition"`
	State      State      `json:"state"`
	Owner      string     `json:"owner,omitempty"` // client id and host
	Start      int64      `json:"start"`           // of the log
	Commit     *int64     `json:"commit"`          // null: none
	End        int64      `json:"end"`             // of what is committed in the log
	Unfinished int64      `json:"unfinished"`      // records that are not settled
	Exact      bool       `json:"exact"`           // false: offsets that are no records may be among them
	Waiting    int64      `json:"waiting"`         // of those, in a tier, whose time has not come
	Overdue    int64      `json:"overdue"`         // of those, in a tier, that should have moved on
	Oldest     *time.Time `json:"oldest_ready,omitempty"`

	tier      bool
	completed int64 // above the commit
}

// judge sets the state of one look.
func (p *Partition) judge(members int, owned bool, now time.Time) {
	p.State = OK
	raise := func(s State, is bool) {
		if is {
			p.State = p.State.Worse(s)
		}
	}
	usable := p.Commit != nil && *p.Commit >= p.Start && *p.Commit <= p.End
	raise(Waiting, p.Waiting > 0)
	raise(Behind, p.behind(now))
	raise(NoCommit, !p.tier && !usable && p.Unfinished > 0) // a tier without a commit is read from its start
	raise(Unassigned, !owned)
	raise(NoMembers, members == 0)
}

func (p *Partition) behind(now time.Time) bool {
	return p.Overdue > 0 || (p.Oldest != nil && now.Sub(*p.Oldest) > behindAfter)
}

// place is how far a partition has come: it grows with everything that is settled.
func (p *Partition) place() (commit, settled int64) {
	if p.Commit == nil {
		return -1, -1
	}
	return *p.Commit, *p.Commit + p.completed
}

// Watch finds what takes two looks. The zero value has seen none.
type Watch struct {
	seen map[string]seen
}

type seen struct {
	commit, settled int64
	end             int64
	since           time.Time // settled has not grown since
}

// Look takes a report into account and makes its states STALLED and REWOUND where they are.
func (w *Watch) Look(r *Report) {
	if w.seen == nil {
		w.seen = map[string]seen{}
	}
	for i := range r.Topics {
		t := &r.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			w.look(fmt.Sprintf("%s/%s/%x/%d", t.Group, t.Topic, t.id, p.Partition), p, r.At)
		}
		t.judge()
	}
}

func (w *Watch) look(key string, p *Partition, now time.Time) {
	commit, settled := p.place()
	last, ok := w.seen[key]
	next := seen{commit, settled, p.End, now}
	if ok && commit < last.commit {
		p.State = p.State.Worse(Rewound)
		next.commit = last.commit // until it has caught up
	}
	if ok && settled <= last.settled {
		next.since = last.since
	}
	if p.State == Behind && now.Sub(next.since) >= stalledAfter {
		p.State = Stalled
	}
	w.seen[key] = next
}

// Describe writes the definitions for a help text.
func Describe() string {
	var b strings.Builder
	for _, d := range Definitions {
		watch := ""
		if d.Watch {
			watch = " (--watch)"
		}
		fmt.Fprintf(&b, "  %-11s %s%s\n", d.State, d.Means, watch)
	}
	return b.String()
}
