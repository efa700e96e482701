package consume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/offsets"
)

// PositionError says why a partition is not consumed: nobody has decided where it
// begins. It is part of what Loop.Ready returns.
type PositionError struct {
	Partition Partition
	Why       string
	Records   int64         // that are waiting, or were lost
	Age       time.Duration // of the oldest record that is there; 0: none is
}

func (e *PositionError) Error() string {
	records := "records"
	if e.Records == 1 {
		records = "record"
	}
	text := fmt.Sprintf("%s/%d is not consumed: %s: %d %s", e.Partition.Topic, e.Partition.Partition, e.Why, e.Records, records)
	if e.Why == whyTruncated { // whatever is decided, only a restart goes on
		return text
	}
	return fmt.Sprintf("%s, the oldest there is %s old; decide with --initial-offset earliest|latest", text, e.Age.Round(time.Second))
}

const (
	whyNoCommit  = "it has records and the group has no commit for it"
	whyLost      = "records were deleted before they were consumed"
	whyBeyond    = "the commit lies beyond its end (the topic was made again, or truncated)"
	whyTruncated = "its log was cut below what was read (an unclean election); restart to go on"
	whyRecreated = "the commit belongs to an earlier topic of that name"
)

// decide says at which offset a partition begins, or why not at all. commit is -1
// where there is none. It is made again when the commit is of another topic; seen
// says that this very process has read the earlier topic, so that all of the new one
// is unread for certain.
func decide(commit int64, log logState, again, seen bool, initial InitialOffset) (at int64, why string, records int64) {
	oldest := func(why string, records int64) (int64, string, int64) {
		if initial == InitialNone {
			return 0, why, records
		}
		return log.start, "", records
	}
	switch {
	case again && seen:
		return log.start, "", 0
	case again:
		return oldest(whyRecreated, log.end-log.start)
	case commit < 0 && log.start == log.end:
		return log.end, "", 0
	case commit < 0 && initial == InitialLatest:
		return log.end, "", 0
	case commit < 0:
		return oldest(whyNoCommit, log.end-log.start)
	case commit < log.start:
		return oldest(whyLost, log.start-commit)
	case commit > log.end:
		return oldest(whyBeyond, commit-log.end)
	}
	return commit, "", 0
}

// decideOn is decide for a partition that is being read, at next. Where the log ends
// below that it was cut: offsets were given out a second time, to other records, which
// would count as read already. Only a restart knows them apart.
func decideOn(next int64, log logState, initial InitialOffset) (at int64, why string, records int64) {
	if next > log.end {
		return 0, whyTruncated, next - log.end
	}
	return decide(next, log, false, false, initial)
}

// fetchedCommit is what the group coordinator answered for a partition.
type fetchedCommit struct {
	offset   int64
	metadata string
}

// offsetsFetched keeps the answer for adjust, which kgo calls next on the same
// goroutine, and which is not shown the metadata.
func (o *ownership) offsetsFetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	fetched := make(map[Partition]fetchedCommit)
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				c := fetchedCommit{offset: p.Offset}
				if p.Metadata != nil {
					c.metadata = *p.Metadata
				}
				fetched[Partition{t.Topic, p.Partition}] = c
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fetched = fetched
	return nil
}

// adjust decides where each new assignment begins. A partition without a decision is
// taken out: kgo then does not fetch it. It returns an error only when the group's
// session ends, else it asks until the brokers answer.
func (o *ownership) adjust(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	var ps []Partition
	for topic, list := range offsets {
		for n := range list {
			ps = append(ps, Partition{topic, n})
		}
	}
	logs, err := o.askLogs(ctx, ps)
	if err != nil {
		return nil, err
	}
	for topic, ps := range offsets {
		for n, given := range ps {
			p := Partition{topic, n}
			at, ok := o.position(ctx, p, o.commitOf(p, given), logs[p])
			switch {
			case !ok:
				delete(ps, n)
			case at != given.EpochOffset().Offset:
				ps[n] = kgo.NewOffset().At(at)
			}
		}
	}
	o.wake()
	return offsets, nil
}

// commitOf joins what kgo made of the answer with the metadata that it does not show.
// kgo's word counts: taking a commit for none would begin, and commit, too early.
func (o *ownership) commitOf(p Partition, given kgo.Offset) fetchedCommit {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := given.EpochOffset().Offset
	if at < 0 {
		return fetchedCommit{offset: -1}
	}
	if c, ok := o.fetched[p]; ok && c.offset == at {
		return c
	}
	return fetchedCommit{offset: at}
}

// madeAgain reports whether the topic is another one than the commit's. seen says that
// this process has read another topic of that name; the commit may be of the new one
// all the same, where another member was quicker, and then its metadata says so.
func madeAgain(foreign Foreign, seen bool) bool {
	switch foreign {
	case ForeignTopic:
		return true
	case ForeignNone, ForeignWatermark: // of this topic
		return false
	}
	return seen
}

// position decides for one partition and tells its ledger.
func (o *ownership) position(ctx context.Context, p Partition, commit fetchedCommit, log logState) (at int64, ok bool) {
	o.mu.Lock()
	a := o.current[p]
	o.mu.Unlock()
	if a == nil {
		return 0, false // taken away while we asked
	}
	settled, foreign := decodeMetadata(commit.metadata, log.topicID, commit.offset)
	seen := a.led.knowsOther(log.topicID)
	again := madeAgain(foreign, seen)
	at, why, records := decide(commit.offset, log, again, seen, o.cfg.InitialOffset)
	l := o.log.With("topic", p.Topic, "partition", p.Partition)
	if why != "" {
		fault := &PositionError{Partition: p, Why: why, Records: records, Age: o.oldest(ctx, p)}
		o.setFault(p, fault)
		l.Error("partition is not consumed", "err", fault)
		return 0, false
	}
	switch {
	case again:
		l.Error("the topic was deleted and made again; beginning at its oldest record", "offset", at)
	case records > 0 && commit.offset >= 0:
		l.Error("records were lost; going on at the oldest there is", "lost", records, "offset", at)
	case foreign.Warn():
		l.Warn("the commit's metadata is not ours and is ignored", "why", string(foreign), "offset", at)
	}
	committed := commit.offset
	if at != commit.offset || again {
		committed, settled = -1, nil // committed at once, so that a restart finds it
	}
	if !o.positioned(a, log.topicID, at, committed, settled) {
		return 0, false
	}
	l.Info("partition assigned", "offset", at, "settled_above", len(settled))
	if o.cfg.Assigned != nil {
		o.cfg.Assigned(p)
	}
	return at, true
}

// positioned tells the assignment where it begins. It returns false where the
// partition was taken away while that was being found out.
func (o *ownership) positioned(a *Assignment, topicID [16]byte, at, committed int64, settled offsets.Set) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current[a.part] != a || a.dying {
		return false
	}
	a.led.position(a, topicID, at, committed, settled)
	a.positioned = true
	return true
}

// knowsOther reports whether this process has read an earlier topic of that name.
func (l *ledger) knowsOther(topicID [16]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.topicID != [16]byte{} && topicID != [16]byte{} && l.topicID != topicID
}

func (o *ownership) setFault(p Partition, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults[p] = err
}

// outOfRange is called when the offset that we ask for does not exist any more: the
// log's retention has overtaken us, or the log was cut. The partition is not fetched
// until that is decided: kgo would ask, and be refused, as fast as it can.
func (o *ownership) outOfRange(p Partition) {
	a, cl := o.block(p)
	if a == nil {
		return
	}
	o.wg.Go(func() {
		logs, err := o.askLogs(a.ctx, []Partition{p})
		if err != nil {
			return // it ends
		}
		l := o.log.With("topic", p.Topic, "partition", p.Partition)
		at, why, records := decideOn(a.led.reads(a), logs[p], o.cfg.InitialOffset)
		if why != "" {
			fault := &PositionError{Partition: p, Why: why, Records: records, Age: o.oldest(a.ctx, p)}
			o.setFault(p, fault)
			l.Error("partition is not consumed any more", "err", fault)
			return
		}
		if records > 0 { // else who answered was behind the leader for a moment
			l.Error("records were lost; going on at the oldest there is", "lost", records, "offset", at)
		}
		cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{p.Topic: {p.Partition: {Epoch: -1, Offset: at}}})
		o.mu.Lock()
		a.blocked = false
		o.mu.Unlock()
		o.wake()
	})
}

// truncated is called when the log was cut below what we read (an unclean election):
// kgo goes back to where it was cut. The partition stops until a restart; see decideOn.
func (o *ownership) truncated(p Partition, lost *kgo.ErrDataLoss) {
	if a, _ := o.block(p); a == nil {
		return
	}
	fault := &PositionError{Partition: p, Why: whyTruncated, Records: lost.ConsumedTo - lost.ResetTo}
	o.setFault(p, fault)
	o.log.Error("partition is not consumed any more", "topic", p.Topic, "partition", p.Partition, "err", errors.Join(fault, lost))
}

// block stops the fetching of a partition. It returns nil where there is nothing to
// stop, or it was stopped before.
func (o *ownership) block(p Partition) (*Assignment, *kgo.Client) {
	o.mu.Lock()
	a, cl := o.current[p], o.cl
	if a == nil || !a.armed || a.blocked || o.closing {
		o.mu.Unlock()
		return nil, nil
	}
	a.blocked = true
	o.mu.Unlock()
	o.reconcile()
	return a, cl
}
