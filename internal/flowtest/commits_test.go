package flowtest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/testkit"
)

// commit is one committed offset of the dispatcher's group.
type commit struct {
	topic     string
	partition int32
	offset    int64
}

// neverBack demands that the commits of every partition only grow.
func (l *commitLog) neverBack(t *testing.T) {
	t.Helper()
	type place struct {
		topic     string
		partition int32
	}
	last := make(map[place]int64)
	all := l.all(t)
	for _, c := range all {
		at := place{c.topic, c.partition}
		if before, ok := last[at]; ok && c.offset < before {
			t.Errorf("a commit of partition %d moved back from %d to %d", c.partition, before, c.offset)
		}
		last[at] = c.offset
	}
	t.Logf("%d commits of %d partitions", len(all), len(last))
	if len(all) == 0 {
		t.Error("no commit was seen")
	}
}

func TestInvariant3CommitsNeverMoveBackWhileMembersComeAndGo(t *testing.T) {
	f := newFlow(t)
	logs := testkit.NewLogCapture(t)
	f.logs = logs.From(slog.LevelInfo) // a capture keeps so many lines, and the client's at debug are more
	commits := f.cluster.watchCommits(t, f.names().Group(app.RoleDispatcher))
	ids := f.endpoints(8)
	for _, id := range ids {
		f.receiver.Script("/"+id, testkit.Always(testkit.Answer{Delay: 10 * time.Millisecond}))
	}
	f.ready(f.start())
	f.ready(f.start())
	load := f.load(150, ids...)
	for range 3 {
		guest := f.start()
		f.ready(guest)
		seen := f.receiver.Log.Len()
		f.receiver.WaitFor(t, seen+150, 30*time.Second)
		guest.end(t)
	}
	load.stop()
	c := f.delivered(time.Minute)
	f.settled(20 * time.Second)
	open := 0
	for _, l := range logs.Find("partition let go", "topic="+f.names().Deliveries()) {
		open += int(l.Attrs["open"].(int64))
	}
	t.Logf("%s; %d deliveries were open when their partition went", c, open)
	if c.Repeats > open {
		t.Errorf("%d repeats, and only %d deliveries were open when their partition went", c.Repeats, open)
	}
	_, own := f.repeats()
	if own != 0 {
		t.Errorf("%d attempts were POSTed twice by one process", own)
	}
	commits.neverBack(t)
}
