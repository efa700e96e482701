package dlq

import (
	"context"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// How far back the first copy of a duplicate is looked for: the further of the two. Owners
// remember an attempt for 15 minutes, and a million of them (dispatcher.duplicates.*, by
// default); a quiet one remembers for longer, and the topic has few records then. Of an
// owner that is told to remember more of both, a first copy may not be found.
const (
	rememberFor = time.Hour
	rememberAll = 1_000_000 // records of a partition, however old
)

// past is what the attempts from before a run say of what it wrote: what became of first
// copies that were not its own. It is read once, when a duplicate needs it, and holds an
// entry for each delivery of the run that was attempted then.
type past struct {
	states map[uint64]followed
	cut    map[int32]bool // by partition: retention may have taken what owners remember
}

// find says what a duplicate's first copy came to. notTried: it waits for its turn, or the
// past was not read yet.
func (p *past) find(h uint64, part int32) followed {
	if p == nil {
		return notTried
	}
	if state := p.states[h]; state != notTried || !p.cut[part] {
		return state
	}
	return unknown
}

// readPast looks at what was attempted before the run began, if a duplicate has come whose
// first copy was not attempted since.
func (f *follower) readPast(ctx context.Context) error {
	f.mu.Lock()
	needed := f.orphans && f.past == nil
	parts := partitionsOf(f.names, int32(len(f.from))) // also those from before they were raised
	f.mu.Unlock()
	if !needed {
		return nil
	}
	topic, since := f.store.names.Attempts(), f.began.Add(-rememberFor-clockMargin)
	read := &past{states: map[uint64]followed{}, cut: map[int32]bool{}}
	back, err := f.store.forgotten(ctx, topic, since)
	if err != nil {
		return err
	}
	begins, err := f.store.reader.After(ctx, topic, since)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if int(p) >= min(len(back), len(begins)) {
			continue // it was added meanwhile, which this broker has yet to hear
		}
		read.cut[p] = !back[p].IsZero()
		from := max(0, min(begins[p], f.from[p]-rememberAll))
		if err := f.attempts(ctx, p, from, f.from[p], func(_ *schemas.Record, a *schemas.Attempt) { f.recall(read, a) }); err != nil {
			return err
		}
	}
	f.join(read)
	return nil
}

func (f *follower) recall(read *past, a *schemas.Attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := lifeHash(a.DeliveryID, a.Generation)
	if _, ours := f.open[h]; !ours {
		return
	}
	if came := f.stateAfter(a); came != notTried && !read.states[h].ended() {
		read.states[h] = came
	}
}

// join makes the past known to the duplicates that have come, and to those that will.
func (f *follower) join(read *past) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.past = read
	for h, fo := range f.open {
		if fo.state == notTried|copied {
			p := kafka.Partition([]byte(f.names[fo.endpoint]), int32(len(f.from)))
			f.set(h, fo, read.find(h, p)|copied)
		}
	}
}
