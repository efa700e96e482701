package consume

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// shutdownCommit is how long a shutdown waits for its last commit: longer than
// another member's drain, during which commits wait.
const shutdownCommit = 10 * time.Second

// committer serialises commits. Of kgo's ways to commit this takes CommitOffsetsSync
// with a PreCommitFnContext: it stamps the generation before the function runs, waits
// while a join is in flight, and knows topics by their id. Marks and autocommit are
// of no use, because kgo forgets a mark on revoke but commits from its own copy.
//
// The race that all of this is about:
//
//	(1) the commit tick reads watermark 100 of p and blocks: a join is in flight
//	(2) the join ends; p is revoked; our callback commits 150 and lets go
//	(3) the new owner commits 200
//	(4) the tick's commit goes out with the new generation: p falls back to 100
//
// Against it, each enough by itself where it applies:
//   - One commit at a time (turn): the callback's commit waits for the tick's, and
//     the tick holds no partition that the callback let go afterwards.
//   - The request is filled in at the last moment, by fill, which takes out what is
//     not current any more. kgo stamps the generation before that, so a partition
//     that fill finds current is sent with a generation in which we owned it; a copy
//     that is delayed on the wire is refused by the broker once the group has moved on.
//   - The callback waits for the turn as long as its budget. Where a dead broker
//     holds the tick's commit longer, it lets go without a commit, and the delayed
//     one is refused as above.
//
// Within one assignment offsets cannot fall: a tracker's watermark never does, and
// its base is the commit that was fetched in this generation, after the owner before
// us had lost the right to commit.
//
// The turn cannot deadlock: kgo blocks commits only inside join and sync, and calls
// back neither there nor under a lock.
type committer struct {
	turn    chan struct{}
	bare    atomic.Bool  // the broker refused our metadata
	failing atomic.Int64 // unix ms of the first failure since the last success; 0: none
	begun   atomic.Int64 // unix ms at which the commit began that has the turn; 0: none has
}

// snapshot is what a commit says of one assignment.
type snapshot struct {
	offset  int64
	text    string
	changes uint64
}

// pending reports whether a commit would write anything new.
func (l *ledger) pending(a *Assignment) (offset int64, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.ended || a.tracker == nil {
		return 0, false
	}
	return a.tracker.Watermark(), a.committed < 0 || a.tracker.Changes() != a.written
}

func (l *ledger) snapshot(a *Assignment, limit int) (snapshot, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.ended || a.tracker == nil {
		return snapshot{}, false
	}
	s := snapshot{offset: a.tracker.Watermark(), changes: a.tracker.Changes()}
	if limit > 0 {
		s.text = encodeMetadata(a.topicID, a.tracker, limit)
	}
	return s, true
}

func (l *ledger) acknowledged(a *Assignment, s snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.committed, a.written, a.metadata = s.offset, s.changes, len(s.text)
	for offset := range a.here {
		if offset < s.offset {
			delete(a.here, offset)
		}
	}
	if !a.ended {
		l.facts.settled.DropBelow(s.offset)
	}
}

// commit writes what has changed of the given assignments, of all current ones when
// as is nil, and waits for the answer.
func (o *ownership) commit(ctx context.Context, as []*Assignment) error {
	select {
	case o.commits.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("commit: another one has had no answer yet: %w", ctx.Err())
	}
	o.commits.begun.Store(time.Now().UnixMilli())
	defer func() {
		o.commits.begun.Store(0)
		<-o.commits.turn
	}()
	err := o.commitOnce(ctx, as)
	if errors.Is(err, kerr.OffsetMetadataTooLarge) && !o.commits.bare.Swap(true) {
		o.log.Warn("the broker refuses commit metadata (offset.metadata.max.bytes); committing without: a restart repeats more")
		err = o.commitOnce(ctx, as)
	}
	if err == nil {
		o.commits.failing.Store(0)
	} else if ctx.Err() == nil {
		o.commits.failing.CompareAndSwap(0, time.Now().UnixMilli())
	}
	return err
}

func (o *ownership) commitOnce(ctx context.Context, as []*Assignment) error {
	cl, chosen, offsets := o.choose(as)
	if len(chosen) == 0 {
		return nil
	}
	sent := make(map[Partition]snapshot, len(chosen))
	fill := func(req *kmsg.OffsetCommitRequest) error { return o.fill(req, chosen, sent) }
	var failed error
	cl.CommitOffsetsSync(kgo.PreCommitFnContext(ctx, fill), offsets,
		func(_ *kgo.Client, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				failed = err
				return
			}
			failed = o.answered(req, resp, chosen, sent)
		})
	if errors.Is(failed, errNothingLeft) {
		return nil
	}
	return failed
}

var errNothingLeft = errors.New("nothing is owned any more")

// choose returns the assignments that have something to commit.
func (o *ownership) choose(as []*Assignment) (*kgo.Client, map[Partition]*Assignment, map[string]map[int32]kgo.EpochOffset) {
	o.mu.Lock()
	defer o.mu.Unlock()
	chosen := make(map[Partition]*Assignment)
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	add := func(a *Assignment) {
		offset, changed := a.led.pending(a)
		if !changed || !a.positioned || o.current[a.part] != a {
			return
		}
		chosen[a.part] = a
		if offsets[a.part.Topic] == nil {
			offsets[a.part.Topic] = make(map[int32]kgo.EpochOffset)
		}
		offsets[a.part.Topic][a.part.Partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	if as == nil {
		for _, a := range o.current {
			add(a)
		}
	}
	for _, a := range as {
		add(a)
	}
	return o.cl, chosen, offsets
}

// fill writes offsets and metadata as of now into a request that is about to go out,
// and takes out the partitions that went since it was made.
func (o *ownership) fill(req *kmsg.OffsetCommitRequest, chosen map[Partition]*Assignment, sent map[Partition]snapshot) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	limit := MaxMetadata
	if o.commits.bare.Load() {
		limit = 0
	}
	topics := req.Topics[:0]
	for _, t := range req.Topics {
		ps := t.Partitions[:0]
		for _, rp := range t.Partitions {
			p := Partition{t.Topic, rp.Partition}
			a := chosen[p]
			if a == nil || o.current[p] != a {
				continue
			}
			s, ok := a.led.snapshot(a, limit)
			if !ok {
				continue
			}
			rp.Offset, rp.Metadata = s.offset, &s.text
			sent[p] = s
			ps = append(ps, rp)
		}
		if t.Partitions = ps; len(ps) > 0 {
			topics = append(topics, t)
		}
	}
	req.Topics = topics
	if len(topics) == 0 {
		return errNothingLeft
	}
	return nil
}

// answered notes what the broker acknowledged and returns the first refusal.
func (o *ownership) answered(req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, chosen map[Partition]*Assignment, sent map[Partition]snapshot) error {
	names := make(map[[16]byte]string)
	for _, t := range req.Topics {
		names[t.TopicID] = t.Topic
	}
	var failed error
	for _, t := range resp.Topics {
		topic := t.Topic
		if topic == "" {
			topic = names[t.TopicID]
		}
		for _, rp := range t.Partitions {
			p := Partition{topic, rp.Partition}
			s, ok := sent[p]
			if !ok {
				continue
			}
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				failed = fmt.Errorf("%s/%d: %w", p.Topic, p.Partition, err)
				continue
			}
			chosen[p].led.acknowledged(chosen[p], s)
		}
	}
	return failed
}

// sinceMilli is how long ago a unix time in ms was; 0 where it is 0.
func sinceMilli(at *atomic.Int64) time.Duration {
	if ms := at.Load(); ms != 0 {
		return time.Since(time.UnixMilli(ms))
	}
	return 0
}
