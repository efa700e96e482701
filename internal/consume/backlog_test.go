package consume

import (
	"testing"
	"time"

	"github.com/milena-project/milena/internal/offsets"
	"github.com/milena-project/milena/schemas"
)

// backlogWorld is one assignment that begins at offset 10.
func backlogWorld() (*ownership, *Assignment) {
	p := Partition{"t", 0}
	o := &ownership{cfg: &Config{Topics: []string{"t"}}, limits: limits{queueBytes: 1 << 30, unsettled: 1 << 30}, current: map[Partition]*Assignment{}}
	a := &Assignment{part: p, own: o, led: &ledger{}, tracker: offsets.NewTracker(10), more: make(chan struct{}, 1)}
	o.current[p] = a
	return o, a
}

func receiveAt(a *Assignment, offset int64, at time.Time) {
	a.led.receive(a, []schemas.Record{{Offset: offset, Timestamp: at}}, func(int) bool { return false }, &a.own.limits)
}

func wantBacklog(t *testing.T, o *ownership, unfinished int64, oldest time.Time) {
	t.Helper()
	f := o.figures()
	if len(f.Topics) != 1 || f.Partitions != len(o.current) || f.Topics[0].Unfinished != unfinished || !f.Topics[0].Oldest.Equal(oldest) {
		t.Errorf("%+v, want %d unfinished since %s", f, unfinished, oldest)
	}
}

func TestTheOldestIsTheFirstThatIsNotDone(t *testing.T) {
	o, a := backlogWorld()
	wantBacklog(t, o, 0, time.Time{})
	began := time.Now().Add(-time.Hour)
	for i := range int64(100) {
		receiveAt(a, 10+i, began.Add(time.Duration(i)*time.Second))
	}
	wantBacklog(t, o, 100, began)
	for i := range int64(50) {
		a.Done(10 + i)
	}
	wantBacklog(t, o, 50, began.Add(50*time.Second))
	for i := range int64(20) {
		a.Done(90 + i) // above the first that is open
	}
	wantBacklog(t, o, 30, began.Add(50*time.Second))
	for i := range int64(30) {
		a.Done(60 + i)
	}
	wantBacklog(t, o, 0, time.Time{})
}

func TestWhatWasNotReadCountsFromWhenItWasSeen(t *testing.T) {
	o, a := backlogWorld()
	o.reaches(a.part, 10)
	wantBacklog(t, o, 0, time.Time{})
	before := time.Now()
	o.reaches(a.part, 25)
	f := o.figures()
	if f.Topics[0].Unfinished != 15 || f.Topics[0].Oldest.Before(before) || f.Topics[0].Oldest.After(time.Now()) {
		t.Errorf("%+v", f)
	}
	seen := f.Topics[0].Oldest
	o.reaches(a.part, 30)
	wantBacklog(t, o, 20, seen)
	at := time.Now().Add(-time.Minute)
	receiveAt(a, 10, at)
	wantBacklog(t, o, 20, at)
}

// A partition that stands still for an hour of traffic costs some kilobytes for it.
func TestAgesAreFew(t *testing.T) {
	_, a := backlogWorld()
	began := time.Now()
	for i := range int64(36_000) {
		receiveAt(a, 10+i, began.Add(time.Duration(i)*100*time.Millisecond))
	}
	if n := len(a.ages); n > 36_000/2 {
		t.Errorf("%d ages for an hour", n)
	}
	for i := range int64(36_000) {
		a.Done(10 + i)
	}
	receiveAt(a, 36_010, began.Add(2*time.Hour))
	if n := len(a.ages); n > 2 {
		t.Errorf("%d ages are left", n)
	}
}
