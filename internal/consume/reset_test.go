package consume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/testkit"
)

func TestWhereAPartitionBegins(t *testing.T) {
	log := logState{start: 10, end: 20}
	empty := logState{start: 7, end: 7}
	for name, c := range map[string]struct {
		commit      int64
		log         logState
		again, seen bool
		initial     InitialOffset
		at          int64
		why         string
		records     int64
	}{
		"at the commit":                   {commit: 15, log: log, at: 15},
		"at the commit, at the start":     {commit: 10, log: log, at: 10},
		"at the commit, at the end":       {commit: 20, log: log, at: 20},
		"the commit, not what is set":     {commit: 15, log: log, initial: InitialLatest, at: 15},
		"brand new":                       {commit: -1, log: logState{}, at: 0},
		"never consumed, nothing there":   {commit: -1, log: empty, at: 7},
		"never consumed":                  {commit: -1, log: log, why: whyNoCommit, records: 10},
		"never consumed, earliest":        {commit: -1, log: log, initial: InitialEarliest, at: 10, records: 10},
		"never consumed, latest":          {commit: -1, log: log, initial: InitialLatest, at: 20},
		"lost some":                       {commit: 4, log: log, why: whyLost, records: 6},
		"lost all":                        {commit: 4, log: empty, why: whyLost, records: 3},
		"lost some, earliest":             {commit: 4, log: log, initial: InitialEarliest, at: 10, records: 6},
		"lost some, latest skips no more": {commit: 4, log: log, initial: InitialLatest, at: 10, records: 6},
		"beyond the end":                  {commit: 25, log: log, why: whyBeyond, records: 5},
		"beyond the end, earliest":        {commit: 25, log: log, initial: InitialEarliest, at: 10, records: 5},
		"made again":                      {commit: 15, log: log, again: true, why: whyRecreated, records: 10},
		"made again, latest":              {commit: 15, log: log, again: true, initial: InitialLatest, at: 10, records: 10},
		"made again under our eyes":       {commit: 15, log: log, again: true, seen: true, at: 10},
	} {
		at, why, records := decide(c.commit, c.log, c.again, c.seen, c.initial)
		if at != c.at || why != c.why || records != c.records {
			t.Errorf("%s: %d %q %d, want %d %q %d", name, at, why, records, c.at, c.why, c.records)
		}
	}
}

func undecided(c *Config, _ *member) { c.InitialOffset = InitialNone }

func awaitFault(t *testing.T, m *member, why string, records int64) {
	t.Helper()
	testkit.Eventually(t, patience, func() string {
		var p *PositionError
		if err := m.loop.Ready(); !errors.As(err, &p) || p.Why != why || p.Records != records {
			return fmt.Sprintf("ready says %v, want %q and %d", err, why, records)
		}
		return ""
	})
}

func TestRecordsWithoutACommitWaitForADecision(t *testing.T) {
	w := newWorld(t, 2)
	w.produce(0, 5)
	m := w.join(undecided)
	awaitFault(t, m, whyNoCommit, 5)
	// Its sister is new and empty: it begins at 0, and says so in Kafka before the
	// first record, so that a restart finds a commit.
	w.awaitCommit(1, 0)
	w.produce(1, 3)
	for _, r := range m.await(3) {
		if r.rec.Partition != 1 {
			t.Errorf("%d/%d was handed over", r.rec.Partition, r.rec.Offset)
		}
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(1, 3)
	if got, _ := w.commit(0); got.At >= 0 {
		t.Errorf("partition 0 was committed at %d", got.At)
	}
	m.leave()
	m = w.join(nil) // earliest
	m.await(5)
	m.leave()
	w.check()
}

func TestALossIsAnErrorUntilItIsDecided(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, 30)
	m := w.join(nil)
	for _, r := range m.await(30)[:10] {
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(0, 10)
	m.leave()
	w.deleteRecords(0, 25)
	m = w.join(undecided)
	awaitFault(t, m, whyLost, 15)
	if got := len(m.got()); got != 0 {
		t.Errorf("%d records were handed over", got)
	}
	m.leave()
	m = w.join(func(c *Config, _ *member) { c.InitialOffset = InitialLatest })
	if first := m.await(5)[0].rec.Offset; first != 25 {
		t.Errorf("begins at %d, want what is left", first)
	}
	m.leave()
	w.check()
}

func (w *world) deleteRecords(partition int32, before int64) {
	w.t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(testTopic, partition, before, -1)
	if _, err := kadm.NewClient(w.producer).DeleteRecords(context.Background(), offsets); err != nil {
		w.t.Fatal(err)
	}
}

// Retention overtakes a partition that is paused.
func TestALossWhileRunningIsSeen(t *testing.T) {
	for _, decided := range []InitialOffset{InitialNone, InitialEarliest} {
		t.Run(string(decided), func(t *testing.T) {
			w := newWorld(t, 1)
			w.produce(0, 1)
			m := w.join(nil)
			m.await(1)[0].a.Done(0)
			w.awaitCommit(0, 1)
			m.leave()

			p := Partition{testTopic, 0}
			behind := func(m *member, is bool) {
				m.loop.own.mu.Lock()
				a := m.loop.own.current[p]
				m.loop.own.mu.Unlock()
				a.led.mu.Lock()
				a.behind = is
				a.led.mu.Unlock()
				m.loop.wake()
			}
			m = w.join(func(c *Config, m *member) {
				c.InitialOffset = decided
				c.Assigned = func(Partition) { behind(m, true) }
			})
			w.log.Await(t, patience, "partition assigned", "offset=1")
			testkit.Eventually(t, patience, func() string {
				m.loop.own.mu.Lock()
				defer m.loop.own.mu.Unlock()
				if a := m.loop.own.current[p]; a == nil || !a.armed {
					return "not armed"
				}
				return ""
			})
			w.produce(0, 30)
			w.deleteRecords(0, 21)
			behind(m, false)
			if decided == InitialNone {
				awaitFault(t, m, whyLost, 20)
				return
			}
			if first := m.await(10)[0].rec.Offset; first != 21 {
				t.Errorf("goes on at %d, want 21", first)
			}
			w.log.Await(t, patience, "records were lost")
			w.check()
		})
	}
}

// Somebody deletes the topic and makes it again, while we run: not ready, then all of
// the new topic's records, and no commit of the old one's.
func TestATopicThatIsMadeAgainIsReadFromItsBeginning(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, 50)
	m := w.join(undecidedAfterFirst(w))
	for _, r := range m.await(50) {
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(0, 50)
	adm := kadm.NewClient(w.producer)
	if _, err := adm.DeleteTopic(t.Context(), testTopic); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func() string {
		if m.loop.Ready() == nil {
			return "ready without its topic"
		}
		return ""
	})
	w.mu.Lock()
	clear(w.committed) // the law is about one topic
	w.mu.Unlock()
	w.fake.CreateTopics(testkit.Topic{Name: testTopic, Partitions: 1})
	w.producer = w.fake.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	w.produce(0, 60)
	for i, r := range m.await(110)[50:] {
		if r.rec.Offset != int64(i) {
			t.Fatalf("record %d of the new topic is offset %d", i, r.rec.Offset)
		}
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(0, 60)
	testkit.Eventually(t, patience, func() string {
		if err := m.loop.Ready(); err != nil {
			return err.Error()
		}
		return ""
	})
	w.log.Await(t, time.Second, "a topic was deleted and made again")
	m.leave()
	w.check()
}

// undecidedAfterFirst gives the group a commit at 0 first, so that a member without an
// initial offset may begin.
func undecidedAfterFirst(w *world) func(*Config, *member) {
	var at kadm.Offsets
	at.AddOffset(testTopic, 0, 0, -1)
	if _, err := kadm.NewClient(w.producer).CommitOffsets(context.Background(), testGroup, at); err != nil {
		w.t.Fatal(err)
	}
	return undecided
}

// The process was down meanwhile: only the commit's metadata can tell.
func TestACommitOfAnEarlierTopicIsNotTakenForThisOne(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, 10)
	m := w.join(nil)
	for _, r := range m.await(10) {
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(0, 10)
	m.leave()
	old, err := w.commit(0)
	if err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(w.producer)
	if _, err := adm.DeleteTopic(t.Context(), testTopic); err != nil {
		t.Fatal(err)
	}
	w.fake.CreateTopics(testkit.Topic{Name: testTopic, Partitions: 1})
	w.producer = w.fake.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	w.produce(0, 30)
	// A broker that forgot to forget: the old commit lies within the new log.
	if _, err := kadm.NewClient(w.producer).CommitOffsets(t.Context(), testGroup, kadm.Offsets{testTopic: {0: old}}); err != nil {
		t.Fatal(err)
	}
	m = w.join(undecided)
	awaitFault(t, m, whyRecreated, 30)
	m.leave()
	clear(w.committed)
	m = w.join(nil)
	if first := m.await(30)[0].rec.Offset; first != 0 {
		t.Errorf("begins at %d", first)
	}
	m.leave()
	w.check()
}

func TestACommitOfTheNewTopicByAQuickerMemberCounts(t *testing.T) {
	for _, c := range []struct {
		foreign     Foreign
		seen, again bool
	}{
		{ForeignNone, true, false},
		{ForeignWatermark, true, false},
		{ForeignTopic, false, true},
		{ForeignTopic, true, true},
		{ForeignEmpty, true, true}, // no commit at all, as a rule: Kafka deletes them with the topic
		{ForeignEmpty, false, false},
		{ForeignMember, false, false},
		{ForeignUnknown, true, true},
	} {
		if got := madeAgain(c.foreign, c.seen); got != c.again {
			t.Errorf("%q, seen %v: %v", c.foreign, c.seen, got)
		}
	}
}

func TestACutLogStopsThePartition(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, 10)
	m := w.join(nil)
	m.await(10)
	m.loop.handle(kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: testTopic, Partitions: []kgo.FetchPartition{
		{Partition: 0, Err: &kgo.ErrDataLoss{Topic: testTopic, ConsumedTo: 10, ResetTo: 7}},
	}}}}})
	awaitFault(t, m, whyTruncated, 3)
	w.produce(0, 10)
	testkit.Eventually(t, patience, func() string {
		m.loop.own.mu.Lock()
		defer m.loop.own.mu.Unlock()
		if !m.loop.own.told[Partition{testTopic, 0}] {
			return "still fetched"
		}
		return ""
	})
	m.leave()
	w.check()
}

// A cut that kgo does not see, because what was read had no leader epoch: the log ends
// below the offset that is asked for. To begin again at its start would take all that is
// written up to there for records that were read.
func TestALogThatEndsBelowWhatWasReadStopsThePartition(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, 10)
	m := w.join(nil) // earliest
	a := m.await(10)[0].a
	a.led.mu.Lock()
	a.tracker.Received(12)
	a.led.mu.Unlock()
	m.loop.handle(kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: testTopic, Partitions: []kgo.FetchPartition{
		{Partition: 0, Err: kerr.OffsetOutOfRange},
	}}}}})
	awaitFault(t, m, whyTruncated, 3)
	if text := m.loop.Ready().Error(); !strings.Contains(text, "restart to go on") || strings.Contains(text, "--initial-offset") {
		t.Errorf("it says %q", text)
	}
	m.leave()
	w.check()
}

// A leader that was frozen does not know of its successor, and answers with the end of
// then. Taken for a truncated log, all of it would be delivered again.
func TestACommitIsNotBeyondTheEndBecauseALeaderThatWasReplacedSaysSo(t *testing.T) {
	w := newWorld(t, 1, testkit.WithBrokers(3))
	w.produce(0, 20)
	m := w.join(nil)
	for _, r := range m.await(20) {
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(0, 20)
	m.leave()
	c := w.fake.Cluster()
	if err := c.MoveTopicPartition(testTopic, 0, (c.LeaderFor(testTopic, 0)+1)%3); err != nil {
		t.Fatal(err)
	}
	answered := 0
	w.fake.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		asked := req.(*kmsg.ListOffsetsRequest)
		if answered == 2 || asked.IsolationLevel != 0 || asked.Topics[0].Partitions[0].Timestamp != -1 { // who else asks is not meant
			return nil, nil, false
		}
		answered++
		part := kmsg.NewListOffsetsResponseTopicPartition()
		part.Offset, part.LeaderEpoch = 5, 0
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = asked.Topics[0].Topic
		topic.Partitions = append(topic.Partitions, part)
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	m = w.join(nil)
	w.log.Await(t, patience, "partition assigned", "offset=20")
	w.produce(0, 1)
	if first := m.await(1)[0].rec.Offset; first != 20 {
		t.Errorf("begins at %d", first)
	}
	m.leave()
	w.check()
}
