package lag

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func at(t time.Time) *time.Time { return &t }

func TestOfTheStatesThatHoldAPartitionHasTheMostUrgent(t *testing.T) {
	now := time.Now()
	ten, hundred := int64(10), int64(100)
	old, fresh := at(now.Add(-time.Minute)), at(now.Add(-time.Second))
	for name, c := range map[string]struct {
		p       Partition
		members int
		owned   bool
		want    State
	}{
		"nothing left":                     {Partition{Commit: &ten, End: 10}, 1, true, OK},
		"work of this moment":              {Partition{Commit: &ten, End: 12, Unfinished: 2, Oldest: fresh}, 1, true, OK},
		"old work":                         {Partition{Commit: &ten, End: 12, Unfinished: 2, Oldest: old}, 1, true, Behind},
		"old work, nobody owns it":         {Partition{Commit: &ten, End: 12, Unfinished: 2, Oldest: old}, 1, false, Unassigned},
		"old work, no process":             {Partition{Commit: &ten, End: 12, Unfinished: 2, Oldest: old}, 0, false, NoMembers},
		"no work, no process":              {Partition{Commit: &ten, End: 10}, 0, false, NoMembers},
		"waits":                            {Partition{Commit: &ten, End: 12, Unfinished: 2, Waiting: 2, tier: true}, 1, true, Waiting},
		"waits and is overdue":             {Partition{Commit: &ten, End: 12, Unfinished: 2, Waiting: 1, Overdue: 1, tier: true}, 1, true, Behind},
		"never committed":                  {Partition{End: 12, Unfinished: 12, Oldest: old}, 1, true, NoCommit},
		"never committed, empty":           {Partition{}, 1, true, OK},
		"a tier that was never committed":  {Partition{End: 12, Unfinished: 12, Waiting: 12, tier: true}, 1, true, Waiting},
		"committed what retention deleted": {Partition{Start: 50, Commit: &ten, End: 60, Unfinished: 10, Oldest: fresh}, 1, true, NoCommit},
		"committed of an older topic":      {Partition{Commit: &hundred, End: 60, Unfinished: 60, Oldest: fresh}, 1, true, NoCommit},
	} {
		p := c.p
		if p.judge(c.members, c.owned, now); p.State != c.want {
			t.Errorf("%s: %s, want %s", name, p.State, c.want)
		}
	}
}

// watched is one look at one partition.
func watched(w *Watch, now time.Time, commit, completed, end int64) State {
	oldest := now.Add(-time.Hour)
	p := Partition{Commit: &commit, End: end, Unfinished: end - commit - completed, completed: completed, Oldest: &oldest}
	if p.Unfinished == 0 {
		p.Oldest = nil
	}
	p.judge(1, true, now)
	r := &Report{At: now, Topics: []Topic{{Topic: "t", Group: "g", Partitions: []Partition{p}}}}
	w.Look(r)
	r.Judge()
	return r.State
}

func TestAWatchSeesWhatStandsStill(t *testing.T) {
	var w Watch
	now := time.Now()
	for i, c := range []struct {
		after             time.Duration
		commit, completed int64
		want              State
	}{
		{0, 10, 0, Behind},
		{50 * time.Second, 10, 1, Behind}, // something above the commit was settled
		{50 * time.Second, 10, 1, Behind},
		{50 * time.Second, 10, 1, Stalled},
		{50 * time.Second, 12, 0, Behind},
		{time.Hour, 20, 0, OK}, // nothing left
	} {
		now = now.Add(c.after)
		if got := watched(&w, now, c.commit, c.completed, 20); got != c.want {
			t.Errorf("look %d: %s, want %s", i, got, c.want)
		}
	}
}

func TestAWatchSeesACommitThatGoesBack(t *testing.T) {
	var w Watch
	now := time.Now()
	for i, c := range []struct {
		commit int64
		want   State
	}{{10, Behind}, {7, Rewound}, {9, Rewound}, {10, Behind}, {20, OK}} {
		if got := watched(&w, now, c.commit, 0, 20); got != c.want {
			t.Errorf("look %d at commit %d: %s, want %s", i, c.commit, got, c.want)
		}
	}
}

func TestEveryStateHasOneDefinition(t *testing.T) {
	text := Describe()
	for _, s := range []State{OK, Waiting, Behind, Stalled, NoCommit, Unassigned, NoMembers, Rewound} {
		if n := strings.Count(text, "  "+string(s)+" "); n != 1 {
			t.Errorf("%s is defined %d times", s, n)
		}
	}
}

func TestATableFitsATerminal(t *testing.T) {
	now := time.Now()
	commit, old := int64(5), now.Add(-2*time.Hour)
	r := &Report{At: now, Topics: []Topic{
		{Topic: "webhooks.deliveries", Group: "webhooks.dispatcher", Members: 3, Partitions: []Partition{
			{Partition: 0, State: OK, Commit: &commit, End: 5, Exact: true},
			{Partition: 1, State: Behind, Commit: &commit, End: 1_234_567, Unfinished: 1_234_562, Oldest: &old, Owner: "webhooks at 10.0.0.1"},
		}},
		{Topic: "webhooks.retry.24h", Group: "webhooks.releaser", Members: 3, Partitions: []Partition{
			{State: Waiting, tier: true, Commit: &commit, End: 105, Unfinished: 100, Waiting: 100, Exact: true},
		}},
	}, Hold: Hold{Topic: "webhooks.hold", Records: 1_234_562, Since: &old, AsOf: &old, Endpoints: []HeldEndpoint{{Endpoint: "ep_esomievdjsforauqckihxsh634", Records: 1_234_562}}}}
	for i := range r.Topics {
		r.Topics[i].judge()
	}
	r.Judge()
	var b bytes.Buffer
	if err := (Style{}).Write(&b, r); err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(b.String(), "\n\n")
	for line := range strings.Lines(table) {
		most := 100
		if strings.HasPrefix(line, "held") {
			most = 80
		}
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > most {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	t.Log("\n" + b.String())
	if !strings.Contains(b.String(), "1,234,562") || !strings.Contains(b.String(), "2h00m") {
		t.Error(b.String())
	}
}
