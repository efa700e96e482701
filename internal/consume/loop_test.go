package consume

import (
	"testing"
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
