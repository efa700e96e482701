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

const (
	followEvery = 200 * time.Millisecond
	canaryWait  = 2 * time.Minute
	lastLook    = 2 * time.Second // at health, when the waiting was ended
)

// follower reads the attempts of what a run wrote: by delivery id and generation, and not
// by run, for of two copies the owner drops the second one, whoever wrote the first:
//
//	a runner writes a delivery and is killed before its tombstone → the delivery is
//	attempted → the run is resumed, the letter is still there and written again →
//	dropped as a duplicate: what was delivered is the first copy
//
// It costs about 40 bytes a delivery, and what past costs.
type follower struct {
	store *Store
	run   string
	from  []int64        // of attempts, by partition: where the run begins
	at    []int64        // next offset
	parts map[int32]bool // that are read
	ids   []string       // the endpoints that are written to; nil: it reads all partitions
	began time.Time      // the run
	mark  []byte         // what stands in the JSON of each attempt of what the run wrote, and in as few others as may be

	mu      sync.Mutex
	noting  bool
	probing bool              // what is noted now is a canary
	open    map[uint64]follow // by hash of delivery id and generation
	left    int               // of open, those whose end is neither known nor past knowing
	lost    int64             // letters of the run that are not found any more
	merged  int64             // letters that are one delivery with another
	names   []string          // of endpoints that something was written to
	indexes map[string]int32  // in names
	firsts  map[string]bool   // of canaries: whether all of an endpoint were delivered at the first attempt
	waiting map[uint64]bool   // canaries without an outcome
	orphans bool              // a duplicate has come whose first copy was not attempted since the run began
	past    *past             // read then
	looks   looker            // of the goroutine that waits
}

// follow is small, for there is one for each delivery.
type follow struct {
	endpoint int32
	state    followed
}

// followed is what is known of a delivery; from retrying on it holds the next try too, in
// seconds after the run began.
type followed uint32

const (
	notTried followed = iota
	unknown           // a copy was dropped, and the attempts of the first are not in the topic any more
	delivered
	dead
	retrying

	copied followed = 1 << 31 // beside each of them: a copy was dropped
)

// ended: nothing that is read later changes it.
func (s followed) ended() bool { return s&^copied == delivered || s&^copied == dead }

// over: it is not waited for.
func (s followed) over() bool { return s.ended() || s&^copied == unknown }

func newFollower(s *Store, run string, began time.Time, from []int64, ids []string) *follower {
	f := &follower{store: s, run: run, parts: map[int32]bool{}, ids: ids, noting: true, open: map[uint64]follow{},
		began: began, mark: ofALaterLife, indexes: map[string]int32{}, firsts: map[string]bool{}, waiting: map[uint64]bool{}}
	f.grow(from)
	return f
}

// grow takes in partitions, at first all and later those that were added while it waits.
// Then an endpoint's is another one, and what was attempted last where it was is read too.
func (f *follower) grow(from []int64) {
	f.from, f.at = append(f.from, from...), append(f.at, from...)
	n := int32(len(f.from))
	if f.ids == nil {
		for _, p := range every(n) {
			f.parts[p] = true
		}
	}
	for _, id := range f.ids {
		f.parts[kafka.Partition([]byte(id), n)] = true
	}
}

// follow notes where the attempts end now, before anything is written.
func (s *Store) follow(ctx context.Context, run string, plan *Plan) (*follower, error) {
	ends, err := s.reader.Ends(ctx, s.names.Attempts())
	if err != nil {
		return nil, explain(err, s.names.Attempts(), "Read")
	}
	ids := slices.Collect(maps.Keys(plan.Shares))
	if to := plan.Job.ToEndpoint; to != "" {
		ids = []string{to}
	}
	return newFollower(s, run, time.Now(), ends, ids), nil
}

func lifeHash(deliveryID string, generation int) uint64 {
	return hashOfString(schemas.LetterKey(deliveryID, generation))
}

// note switches between following all that is written, as canaries or not, and none of it.
// What was attempted while canaries were waited for is read again: of what is written
// later, another run may have had a copy there.
func (f *follower) note(on, probing bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noting, f.probing = on, probing
	copy(f.at, f.from)
}

func (f *follower) expect(d *schemas.Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.noting {
		return
	}
	h := lifeHash(d.ID(), d.Generation)
	if f.probing {
		f.waiting[h] = true
	}
	if _, known := f.open[h]; known { // it has come back from a retry
		return
	}
	i, ok := f.indexes[d.EndpointID]
	if !ok {
		i = int32(len(f.names))
		f.indexes[d.EndpointID] = i
		f.names = append(f.names, d.EndpointID)
	}
	f.open[h] = follow{endpoint: i}
	f.left++
}

func (f *follower) forget(d *schemas.Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := lifeHash(d.ID(), d.Generation)
	if fo, ok := f.open[h]; ok && !fo.state.over() {
		f.left--
	}
	delete(f.open, h)
	delete(f.waiting, h)
}

// ofALaterLife marks the attempts of what was replayed, by whatever run: the first of two
// copies may be another's. What was sent again is nobody else's, and is marked by its run.
var ofALaterLife = []byte(`"generation":`)

// poll reads what is new.
func (f *follower) poll(ctx context.Context) error {
	topic := f.store.names.Attempts()
	ends, err := f.store.reader.Ends(ctx, topic)
	if err != nil {
		return err
	}
	if n := len(ends) - len(f.at); n > 0 {
		f.grow(make([]int64, n))
	}
	for p := range f.parts {
		if int(p) >= len(ends) || f.at[p] >= ends[p] {
			continue
		}
		if err := f.attempts(ctx, p, f.at[p], ends[p], f.take); err != nil {
			return err
		}
		f.at[p] = ends[p]
	}
	return f.readPast(ctx)
}

// attempts hands over those in a range of a partition that may be of the run's deliveries.
func (f *follower) attempts(ctx context.Context, p int32, from, to int64, take func(*schemas.Record, *schemas.Attempt)) error {
	err := f.store.reader.ReadForwards(ctx, f.store.names.Attempts(), p, from, to, 1<<20, func(recs []schemas.Record) error {
		for i := range recs {
			var a schemas.Attempt
			if bytes.Contains(recs[i].Value, f.mark) && json.Unmarshal(recs[i].Value, &a) == nil {
				take(&recs[i], &a)
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("reading the attempts: %w", err)
	}
	return nil
}

func (f *follower) take(rec *schemas.Record, a *schemas.Attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := lifeHash(a.DeliveryID, a.Generation)
	fo, ok := f.open[h]
	if !ok {
		return
	}
	state := fo.state &^ copied
	switch came := f.stateAfter(a); {
	case a.Outcome == schemas.OutcomeDuplicate:
		fo.state |= copied
		if state == notTried {
			f.orphans = true
			state = f.past.find(h, rec.Partition)
		}
	case came == notTried:
		return
	case !state.ended():
		state = came
	}
	f.set(h, fo, state|fo.state&copied)
	if f.waiting[h] {
		delete(f.waiting, h)
		if a.Outcome == schemas.OutcomeDuplicate {
			return // it says nothing of the endpoint
		}
		good, known := f.firsts[a.EndpointID]
		f.firsts[a.EndpointID] = (good || !known) && a.Outcome == schemas.OutcomeDelivered
	}
}

// stateAfter an attempt; notTried if it says nothing.
func (f *follower) stateAfter(a *schemas.Attempt) followed {
	switch a.Outcome {
	case schemas.OutcomeDelivered:
		return delivered
	case schemas.OutcomeDead:
		return dead
	case schemas.OutcomeRetry:
		return f.retryAt(a.NextTry)
	}
	return notTried
}

func (f *follower) set(h uint64, fo follow, state followed) {
	switch was := fo.state.over(); {
	case !was && state.over():
		f.left--
	case was && !state.over():
		f.left++
	}
	fo.state = state
	f.open[h] = fo
}

// first waits until every letter that was noted since the last call has had an
// attempt, and says of which endpoints all were delivered, and of the others why they
// get no more. Of a duplicate nothing is said.
func (f *follower) first(ctx context.Context, limit time.Duration) (map[string]string, error) {
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
	told := map[string]string{}
	for id, good := range f.firsts {
		if told[id] = canaryGood; !good {
			told[id] = SkipCanary
		}
	}
	for h := range f.waiting {
		if id := f.names[f.open[h].endpoint]; told[id] != SkipCanary {
			told[id] = SkipLate
		}
	}
	clear(f.firsts)
	clear(f.waiting)
	return told, nil
}

var errTime = errors.New("time is up")

// catchUp polls once to the ends, however short the wait is: what was not read is not "not
// tried". Where that fails, it is tried again until the wait is over, but for a right that
// is lacking.
func (f *follower) catchUp(ctx context.Context, until time.Time) error {
	for {
		err := f.poll(ctx)
		if err == nil || ctx.Err() != nil || kafka.IsDenied(err) || !until.IsZero() && time.Now().After(until) {
			return explain(err, f.store.names.Attempts(), "Read")
		}
		f.store.log.Warn("attempts cannot be read, trying again", "run", f.run, "err", err)
		select {
		case <-time.After(followEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

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
