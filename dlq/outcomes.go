package dlq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// ErrUndelivered: the run is done, but not all that it was to write was delivered.
var ErrUndelivered = errors.New("not all were delivered")

// OutcomeCounts is what became of deliveries that a run wrote.
type OutcomeCounts struct {
	Delivered int64 `json:"delivered"`
	Dead      int64 `json:"dead"`      // again
	Duplicate int64 `json:"duplicate"` // dropped: the same delivery was replayed by another run
	Retrying  int64 `json:"retrying"`  // tried and waiting for the next try
	Open      int64 `json:"open"`      // not tried yet
}

func (c *OutcomeCounts) add(o OutcomeCounts) {
	c.Delivered += o.Delivered
	c.Dead += o.Dead
	c.Duplicate += o.Duplicate
	c.Retrying += o.Retrying
	c.Open += o.Open
}

// Total is all of them.
func (c *OutcomeCounts) Total() int64 {
	return c.Delivered + c.Dead + c.Duplicate + c.Retrying + c.Open
}

// Outcomes are the counts by endpoint, and in all.
type Outcomes struct {
	All       OutcomeCounts            `json:"all"`
	Endpoints map[string]OutcomeCounts `json:"endpoints"`
	Waits     map[string]Wait          `json:"waits,omitempty"` // by endpoint that has something retrying or open
}

const (
	followEvery    = 200 * time.Millisecond
	canaryWait     = 2 * time.Minute
	duplicateGrace = 3 * time.Second // for the other copy to show, if it is ours
	lastLook       = 2 * time.Second // at health, when the waiting was ended
)

// follower reads the attempts of a run: what each delivery that it wrote came to.
// It costs about 40 bytes a delivery.
type follower struct {
	store *Store
	run   string
	at    []int64 // next offset of attempts, by partition
	parts map[int32]bool

	mu      sync.Mutex
	noting  bool
	probing bool              // what is noted now is a canary
	open    map[uint64]follow // by hash of delivery id and generation
	counts  map[string]*OutcomeCounts
	names   []string
	indexes map[string]int32
	firsts  map[string]bool // of canaries: whether all of an endpoint were delivered at the first attempt
	waiting map[uint64]bool // canaries without an outcome
	changed time.Time
	began   time.Time
	looks   looker // of the goroutine that waits
}

// follow is small, for there is one for each delivery.
type follow struct {
	endpoint int32
	state    followed
}

// followed is what is known of a delivery; from retrying on it holds the next try too, in
// seconds after the follower began.
type followed uint32

const (
	notTried followed = iota
	duplicate
	retrying
)

func newFollower(s *Store, run string, at []int64) *follower {
	return &follower{store: s, run: run, at: at, parts: map[int32]bool{}, noting: true, open: map[uint64]follow{}, began: time.Now(),
		counts: map[string]*OutcomeCounts{}, indexes: map[string]int32{}, firsts: map[string]bool{}, waiting: map[uint64]bool{}}
}

// follow notes where the attempts end now, before anything is written.
func (s *Store) follow(ctx context.Context, run string, plan *Plan) (*follower, error) {
	ends, err := s.reader.Ends(ctx, s.names.Attempts())
	if err != nil {
		return nil, explain(err, s.names.Attempts(), "Read")
	}
	f := newFollower(s, run, ends)
	ids := slices.Collect(maps.Keys(plan.Shares))
	if to := plan.Job.ToEndpoint; to != "" {
		ids = []string{to}
	}
	for _, id := range ids {
		f.parts[kafka.Partition([]byte(id), int32(len(ends)))] = true
	}
	return f, nil
}

func lifeHash(deliveryID string, generation int) uint64 {
	return hashOfString(schemas.LetterKey(deliveryID, generation))
}

// note switches between following all that is written, as canaries or not, and none of it.
func (f *follower) note(on, probing bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noting, f.probing = on, probing
}

func (f *follower) expect(d *schemas.Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.noting {
		return
	}
	i, ok := f.indexes[d.EndpointID]
	if !ok {
		i = int32(len(f.names))
		f.indexes[d.EndpointID] = i
		f.names = append(f.names, d.EndpointID)
		f.counts[d.EndpointID] = &OutcomeCounts{}
	}
	h := lifeHash(d.ID(), d.Generation)
	f.open[h] = follow{endpoint: i}
	if f.probing {
		f.waiting[h] = true
	}
}

func (f *follower) forget(d *schemas.Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := lifeHash(d.ID(), d.Generation)
	delete(f.open, h)
	delete(f.waiting, h)
}

// poll reads what is new.
func (f *follower) poll(ctx context.Context) error {
	topic := f.store.names.Attempts()
	ends, err := f.store.reader.Ends(ctx, topic)
	if err != nil {
		return err
	}
	for p := range f.parts {
		if int(p) >= len(ends) || f.at[p] >= ends[p] {
			continue
		}
		err := f.store.reader.ReadForwards(ctx, topic, p, f.at[p], ends[p], 1<<20, func(recs []schemas.Record) error {
			for i := range recs {
				var a schemas.Attempt
				if bytes.Contains(recs[i].Value, []byte(f.run)) && json.Unmarshal(recs[i].Value, &a) == nil && a.Run == f.run {
					f.take(&a)
				}
			}
			return ctx.Err()
		})
		if err != nil {
			return fmt.Errorf("reading the attempts: %w", err)
		}
		f.at[p] = ends[p]
	}
	return nil
}

func (f *follower) take(a *schemas.Attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := lifeHash(a.DeliveryID, a.Generation)
	fo, ok := f.open[h]
	if !ok {
		return
	}
	counts := f.counts[f.names[fo.endpoint]]
	switch a.Outcome {
	case schemas.OutcomeDelivered:
		counts.Delivered++
		delete(f.open, h)
	case schemas.OutcomeDead:
		counts.Dead++
		delete(f.open, h)
	case schemas.OutcomeRetry:
		f.open[h] = follow{fo.endpoint, f.retryAt(a.NextTry)}
	case schemas.OutcomeDuplicate:
		if fo.state < retrying { // a copy of our own that was dropped says nothing of the other one
			f.open[h] = follow{fo.endpoint, duplicate}
		}
	default:
		return
	}
	f.changed = time.Now()
	if f.waiting[h] {
		delete(f.waiting, h)
		if a.Outcome == schemas.OutcomeDuplicate {
			return // it says nothing of the endpoint
		}
		good, known := f.firsts[a.EndpointID]
		f.firsts[a.EndpointID] = (good || !known) && a.Outcome == schemas.OutcomeDelivered
	}
}

// first waits until every letter that was noted since the last call has had an
// attempt, and says of which endpoints all were delivered and of which not. Those
// without an outcome in time were not; of a duplicate nothing is said.
func (f *follower) first(ctx context.Context, limit time.Duration) (map[string]bool, error) {
	if limit <= 0 {
		limit = canaryWait
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTime)
	defer cancel()
	err := f.until(ctx, func() bool { return len(f.waiting) == 0 }, nil)
	if err != nil && !errors.Is(context.Cause(ctx), errTime) {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.waiting {
		f.firsts[f.names[f.open[h].endpoint]] = false
	}
	told := f.firsts
	f.firsts = map[string]bool{}
	clear(f.waiting)
	return told, nil
}

var errTime = errors.New("time is up")

// until polls until done, which is asked under the lock.
func (f *follower) until(ctx context.Context, done func() bool, each func()) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if err := f.poll(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f.store.log.Warn("attempts cannot be read, trying again", "run", f.run, "err", err)
		}
		f.mu.Lock()
		ok := done()
		f.mu.Unlock()
		if ok {
			return nil
		}
		if each != nil {
			each()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wait follows until all that was written is delivered or dead, or is known to be a
// duplicate. ErrUndelivered unless all were delivered.
func (f *follower) wait(ctx context.Context, opts Options) (*Outcomes, error) {
	if opts.WaitFor > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, opts.WaitFor, errTime)
		defer cancel()
	}
	told := time.Now()
	err := f.until(ctx, f.settled, func() {
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
	}
	out := f.outcomes()
	if err != nil && !errors.Is(context.Cause(ctx), errTime) {
		return out, err
	}
	all := out.All
	if n := all.Dead + all.Duplicate + all.Retrying + all.Open; n > 0 {
		return out, fmt.Errorf("%w: %d of %d", ErrUndelivered, n, n+all.Delivered)
	}
	return out, nil
}

// undelivered adds to the outcomes what a run left unsent.
func undelivered(run *schemas.Run, err error) error {
	skipped := run.Counts.Skipped
	if left := skipped[SkipCanary] + skipped[SkipTooLarge] + skipped[SkipGone]; err == nil && left > 0 {
		return fmt.Errorf("%w: %d were not sent", ErrUndelivered, left)
	}
	return err
}

// settled: nothing is open but duplicates, and those have had time to show their
// other copy.
func (f *follower) settled() bool {
	for _, fo := range f.open {
		if fo.state != duplicate {
			return false
		}
	}
	return len(f.open) == 0 || time.Since(f.changed) > duplicateGrace
}

func (f *follower) outcomes() *Outcomes {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &Outcomes{Endpoints: map[string]OutcomeCounts{}}
	for id, c := range f.counts {
		out.Endpoints[id] = *c
	}
	for _, fo := range f.open {
		id := f.names[fo.endpoint]
		c := out.Endpoints[id]
		switch {
		case fo.state >= retrying:
			c.Retrying++
		case fo.state == duplicate:
			c.Duplicate++
		default:
			c.Open++
		}
		out.Endpoints[id] = c
	}
	for _, c := range out.Endpoints {
		out.All.add(c)
	}
	f.explainTo(out)
	return out
}
