package dlq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/milena-project/milena/schemas"
)

// ErrUndelivered: the run is done, but not all that it selected is known to be delivered;
// an *UndeliveredError says what.
var ErrUndelivered = errors.New("not all were delivered")

// UndeliveredError says what of a run's selection was not delivered, or is not known to be.
type UndeliveredError struct {
	Of      int64 // that the run selected
	Dead    int64 // of a replay: again
	Skipped int64 // not written, or not any more: Run.Counts says why
	Unknown int64
	Open    int64 // not at their end when the waiting was
}

func (e *UndeliveredError) Error() string {
	var parts, why []string
	if e.Dead > 0 {
		why = append(why, fmt.Sprintf("%d died", e.Dead))
	}
	if e.Skipped > 0 {
		why = append(why, fmt.Sprintf("%d were skipped", e.Skipped))
	}
	if why != nil {
		parts = append(parts, fmt.Sprintf("%d of %d were not delivered: %s", e.Dead+e.Skipped, e.Of, strings.Join(why, ", ")))
	}
	if e.Unknown > 0 {
		parts = append(parts, fmt.Sprintf("what became of %d of %d cannot be told, for the topics no longer say", e.Unknown, e.Of))
	}
	if e.Open > 0 {
		parts = append(parts, "the waiting ended before all was known")
	}
	return strings.Join(parts, "; ")
}

// Is makes it an ErrUndelivered.
func (e *UndeliveredError) Is(target error) bool { return target == ErrUndelivered }

// OutcomeCounts is what became of deliveries that a run wrote. Each is counted once, and a
// copy that was dropped as what became of the first one.
type OutcomeCounts struct {
	Delivered int64 `json:"delivered"`
	Dead      int64 `json:"dead"`     // of a replay: again
	Retrying  int64 `json:"retrying"` // tried and waiting for the next try
	Open      int64 `json:"open"`     // not tried yet
	Unknown   int64 `json:"unknown"`  // the topics no longer say

	Duplicate int64 `json:"duplicate"` // of these: a copy was dropped, because another run or runner had written one too
}

func (c *OutcomeCounts) add(o OutcomeCounts) {
	c.Delivered += o.Delivered
	c.Dead += o.Dead
	c.Retrying += o.Retrying
	c.Open += o.Open
	c.Unknown += o.Unknown
	c.Duplicate += o.Duplicate
}

// Total is all of them.
func (c *OutcomeCounts) Total() int64 { return c.Delivered + c.Dead + c.Retrying + c.Open + c.Unknown }

// Outcomes are the counts by endpoint, and in all.
type Outcomes struct {
	All       OutcomeCounts            `json:"all"`
	Endpoints map[string]OutcomeCounts `json:"endpoints"`
	Merged    int64                    `json:"merged,omitempty"` // letters beside All: of one event, from several endpoints to one, and one delivery there
	Waits     map[string]Wait          `json:"waits,omitempty"`  // by endpoint that has something retrying or open
}

// undelivered judges a run whose outcomes were waited for; ended is why no longer.
func undelivered(run *schemas.Run, out *Outcomes, ended error) error {
	if ended != nil && !errors.Is(ended, errTime) {
		return ended
	}
	e := &UndeliveredError{Of: run.Counts.Matched, Dead: out.All.Dead, Unknown: out.All.Unknown, Open: out.All.Retrying + out.All.Open}
	for _, n := range run.Counts.Skipped {
		e.Skipped += n
	}
	if e.Dead+e.Skipped+e.Unknown+e.Open == 0 {
		return nil
	}
	return e
}

// bound is when a wait that begins now ends; zero: never.
func (o *Options) bound() time.Time {
	if o.WaitFor <= 0 {
		return time.Time{}
	}
	return time.Now().Add(o.WaitFor)
}

// wait follows until all that was written is delivered or dead, or nobody can tell. It
// ends earlier with ctx, or at a time with errTime; but not before it has read what there
// is, or without outcomes.
func (f *follower) wait(ctx context.Context, until time.Time, opts Options) (*Outcomes, error) {
	if err := f.catchUp(ctx, until); err != nil {
		return nil, err
	}
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, until, errTime)
		defer cancel()
	}
	told := time.Now()
	err := f.until(ctx, func() bool { return f.left == 0 }, func() {
		if opts.Following != nil && time.Since(told) >= time.Second {
			told = time.Now()
			f.look(ctx)
			opts.Following(*f.outcomes())
		}
	})
	if err != nil { // whoever ends the waiting is told what was waited for
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
		defer cancel()
		f.look(last)
		if errors.Is(context.Cause(ctx), errTime) {
			err = errTime
		}
	}
	return f.outcomes(), err
}

func (f *follower) outcomes() *Outcomes {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &Outcomes{Endpoints: map[string]OutcomeCounts{}}
	counts := make([]OutcomeCounts, len(f.names))
	for _, fo := range f.open {
		c := &counts[fo.endpoint]
		if fo.state&copied != 0 {
			c.Duplicate++
		}
		switch fo.state &^ copied {
		case notTried:
			c.Open++
		case unknown:
			c.Unknown++
		case delivered:
			c.Delivered++
		case dead:
			c.Dead++
		default:
			c.Retrying++
		}
	}
	for i, id := range f.names {
		out.Endpoints[id] = counts[i]
		out.All.add(counts[i])
	}
	out.All.Unknown += f.lost
	out.Merged = f.merged
	f.explainTo(out)
	return out
}
