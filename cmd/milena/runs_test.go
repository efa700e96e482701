package main

import (
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/schemas"
)

func TestWhatIsWrittenOfARunThatHasNotEndedHasAnAge(t *testing.T) {
	run := schemas.Run{ID: "run-x", State: schemas.RunRunning, Updated: three.Add(-4 * time.Second), Counts: schemas.RunCounts{Written: 451}}
	for want, st := range map[string]dlq.Status{
		"451, 4 s ago": {Run: run, Live: true},
		"451 or more: its runner has not been heard of since; milena runs resume run-x counts exactly": {Run: run},
		"451": {Run: schemas.Run{State: schemas.RunCancelled, Counts: run.Counts}},
	} {
		if got := writtenText(&st, three); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestARunShowsWhoResumedItAndWhyItShallBeCancelled(t *testing.T) {
	fake, env := cluster(t)
	recorded(t, fake, schemas.Run{ID: "run-x", Kind: schemas.RunReplay, State: schemas.RunRunning, Who: "anna", ResumedBy: "ben", ResumedAt: three})
	run(t, "", env, "runs", "cancel", "run-x", "--because", "wrong filter", "--timeout", "1s")
	text := must(t, env, "runs", "show", "run-x")
	if !strings.Contains(text, "resumed        "+clock(three)+" by ben") || !strings.Contains(text, "cancel         asked for by ") || !strings.Contains(text, ": wrong filter\n") {
		t.Error(text)
	}
}

func TestARunThatIsLiveIsNotPlannedAgain(t *testing.T) {
	fake, env := cluster(t)
	bury(t, fake, "shop-1", "1")
	recorded(t, fake, schemas.Run{ID: "run-x", Kind: schemas.RunReplay, State: schemas.RunRunning, Snapshot: map[int32]int64{}})
	if res := run(t, "", env, "runs", "resume", "run-x"); res.code != exitFailed || !strings.Contains(res.err, "the run is live: run-x") || strings.Contains(res.err, "to go on with") {
		t.Errorf("%+v", res)
	}
	if res := run(t, "", env, "dlq", "replay", "--all", "--yes"); res.code != exitFailed || !strings.Contains(res.err, "is at work on all endpoints") {
		t.Errorf("%+v", res)
	}
}
