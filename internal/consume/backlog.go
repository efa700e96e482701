package consume

import (
	"slices"
	"strings"
	"time"
)

// Backlog is what is not settled of one topic, in the partitions that this process owns.
type Backlog struct {
	Topic      string
	Unfinished int64     // received and not done, and what the log holds beyond, as of a moment ago
	Oldest     time.Time // when the oldest of those was appended; zero: there is none
}

// Figures are what a Loop knows of its work at one moment.
type Figures struct {
	Topics       []Backlog // of Config.Topics, or those that are owned where they are regular expressions
	Partitions   int       // owned
	MetadataUsed float64   // the largest share of the room for commit metadata that a partition's last commit took
}

// Figures are true at any time, also while no broker answers: the end of the log is
// then the one that was seen last.
func (l *Loop) Figures() Figures { return l.own.figures() }

func (o *ownership) figures() (f Figures) {
	topics := map[string]*Backlog{}
	if !o.cfg.TopicsRegex {
		for _, t := range o.cfg.Topics {
			topics[t] = &Backlog{Topic: t}
		}
	}
	o.mu.Lock()
	current := make([]*Assignment, 0, len(o.current))
	for _, a := range o.current {
		current = append(current, a)
	}
	o.mu.Unlock()
	f.Partitions = len(current)
	for _, a := range current {
		t := topics[a.part.Topic]
		if t == nil {
			t = &Backlog{Topic: a.part.Topic}
			topics[a.part.Topic] = t
		}
		unfinished, oldest, metadata := a.led.backlog(a)
		t.Unfinished += unfinished
		if !oldest.IsZero() && (t.Oldest.IsZero() || oldest.Before(t.Oldest)) {
			t.Oldest = oldest
		}
		f.MetadataUsed = max(f.MetadataUsed, float64(metadata)/MaxMetadata)
	}
	for _, t := range topics {
		f.Topics = append(f.Topics, *t)
	}
	slices.SortFunc(f.Topics, func(a, b Backlog) int { return strings.Compare(a.Topic, b.Topic) })
	return f
}

// age says when records from an offset on were appended.
type age struct {
	from int64
	at   time.Time
}

// ageStep is how exact ages are: records of one moment share an entry, so that a
// partition that stands still for an hour has some ten thousand and not millions.
const ageStep = 250 * time.Millisecond

// noteAge remembers when a received record was appended; led.mu is held.
func (a *Assignment) noteAge(offset int64, at time.Time) {
	if n := len(a.ages); n > 0 {
		if d := at.Sub(a.ages[n-1].at); d >= 0 && d < ageStep {
			return
		}
	}
	a.forgetAges()
	a.ages = append(a.ages, age{offset, at})
}

// forgetAges drops what lies below the watermark; led.mu is held.
func (a *Assignment) forgetAges() {
	gone := 0
	for gone+1 < len(a.ages) && a.ages[gone+1].from <= a.tracker.Watermark() {
		gone++
	}
	a.ages = a.ages[gone:] // moving the rest down for each record would be a megabyte a record, where every one has an entry
}

// reaches notes the end of a partition's log.
func (o *ownership) reaches(p Partition, end int64) {
	o.mu.Lock()
	a := o.current[p]
	o.mu.Unlock()
	if a == nil {
		return
	}
	a.led.mu.Lock()
	defer a.led.mu.Unlock()
	a.end = end
	if a.tracker == nil || end <= a.tracker.Next() {
		a.endMoved = time.Time{}
	} else if a.endMoved.IsZero() {
		a.endMoved = time.Now()
	}
}

// backlog is what is not settled of an assignment. Of what was not read nobody knows
// the age: it counts from when it was first seen to be there.
func (l *ledger) backlog(a *Assignment) (unfinished int64, oldest time.Time, metadata int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.ended || a.tracker == nil {
		return 0, oldest, 0
	}
	open, unread := int64(a.tracker.Unsettled()), max(0, a.end-a.tracker.Next())
	switch {
	case open > 0:
		a.forgetAges()
		if len(a.ages) > 0 {
			oldest = a.ages[0].at
		}
	case unread > 0:
		oldest = a.endMoved
	}
	return open + unread, oldest, a.metadata
}
