package consume

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestACommitNeverPassesARecordThatIsNotDone(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, 10)
	m := w.join(nil)
	got := m.await(10)
	for _, i := range []int{9, 1, 0, 4, 3} {
		got[i].a.Done(got[i].rec.Offset)
	}
	w.awaitCommit(0, 2)
	got[2].a.Done(2)
	w.awaitCommit(0, 5)
	if err := m.loop.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
	m.leave()
	if m.err != nil {
		t.Error(m.err)
	}
	w.check()

	// What was done above the commit is not handed over after a restart.
	m = w.join(nil)
	for _, r := range m.await(4) {
		if o := r.rec.Offset; o < 5 || o > 8 {
			t.Errorf("offset %d was handed over again", o)
		}
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(0, 10)
	m.leave()
	w.check()
}

func TestABrokerThatRefusesMetadataGetsNone(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, 10)
	refused := 0
	w.fake.ControlKey(8, func(r kmsg.Request) (kmsg.Response, error, bool) {
		w.fake.Cluster().KeepControl()
		req := r.(*kmsg.OffsetCommitRequest)
		if *req.Topics[0].Partitions[0].Metadata == "" {
			return nil, nil, false
		}
		refused++
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetCommitResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.OffsetMetadataTooLarge.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	m := w.join(nil)
	for _, r := range m.await(10)[:7] {
		r.a.Done(r.rec.Offset)
	}
	w.awaitCommit(0, 7)
	m.leave()
	if refused != 1 {
		t.Errorf("%d commits were refused, want one and then none with metadata", refused)
	}
	w.check()
}

func TestForeignMetadataIsWarnedOfButAMemberIDIsNot(t *testing.T) {
	for text, warns := range map[string]bool{
		"written by cron": true,
		"consumer-webhooks-1-0b2f1c34-9a8d-4e5f-8a7b-1234567890ab": false,
	} {
		w := newWorld(t, 1)
		w.produce(0, 10)
		commit := kadm.Offset{Topic: testTopic, At: 4, LeaderEpoch: -1, Metadata: text}
		if _, err := kadm.NewClient(w.producer).CommitOffsets(t.Context(), testGroup, kadm.Offsets{testTopic: {0: commit}}); err != nil {
			t.Fatal(err)
		}
		m := w.join(nil)
		if first := m.await(6)[0].rec.Offset; first != 4 {
			t.Errorf("begins at %d", first)
		}
		if got := len(w.log.Find("metadata is not ours")) > 0; got != warns {
			t.Errorf("%q: warned is %v", text, got)
		}
		m.leave()
		w.check()
	}
}
