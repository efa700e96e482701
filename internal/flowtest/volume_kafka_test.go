//go:build kafka

package flowtest

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
)

// A hundred thousand records of 1 KB through one process: each arrives once.
func TestSoakHundredThousandRecords(t *testing.T) {
	needsBudget(t)
	f := newFlow(t)
	ids := f.endpoints(100)
	f.send(1_000, 1_000, ids...)
	begun := time.Now()
	p := f.spawn()
	c := f.delivered(5 * time.Minute)
	took := time.Since(begun)
	f.settled(20 * time.Second)
	t.Logf("%s; %d signatures wrong; lag 0; %.0f/s from the start of the process", c, f.receiver.Log.Invalid(), float64(c.Received)/took.Seconds())
	if c.Repeats != 0 {
		t.Errorf("%d repeats without a reason", c.Repeats)
	}
	p.terminate()
}

// The same with a second process, and kill -9 of one of them at five seeded moments
// with at least a hundred requests in flight.
func TestSoakHundredThousandRecordsWithKills(t *testing.T) {
	needsBudget(t)
	const kills = 5
	f := newFlow(t)
	f.mortal()
	rng := testkit.Rand(t)
	ids := f.endpoints(100)
	for _, id := range ids {
		f.receiver.Script("/"+id, testkit.Always(testkit.Answer{Delay: 60 * time.Millisecond}))
	}
	procs := []*child{f.spawn(), f.spawn()}
	f.send(1_000, 1_000, ids...)
	bound := 0
	for k := range kills {
		f.receiver.WaitFor(t, 5_000+k*16_000+rng.IntN(8_000), 3*time.Minute)
		testkit.Eventually(t, time.Minute, func() string {
			if f.inFlight(ids...) < 100 {
				return "fewer than 100 requests are in flight"
			}
			return ""
		})
		answered, inFlight := f.received(time.Second), f.inFlight(ids...)
		victim := rng.IntN(2)
		procs[victim].kill()
		t.Logf("killed with %d requests in flight at %d answers/s", inFlight, answered)
		bound += inFlight + answered
		procs[victim] = f.spawn()
	}
	c := f.delivered(5 * time.Minute)
	f.settled(time.Minute)
	all, own := f.repeats()
	t.Logf("%s; %d signatures wrong; lag 0; %d repeats, R1 allows %d; %d by one and the same process", c, f.receiver.Log.Invalid(), all, bound, own)
	if all > bound || own != 0 {
		t.Errorf("%d repeats (%d by one process), R1 allows %d", all, own, bound)
	}
	for _, p := range procs {
		p.terminate()
	}
}

// A backlog of a million records: what the process takes of memory follows from its
// configuration and its rate, and is the same after the first tenth as at the end.
func TestSoakAMillionRecordsOfBacklog(t *testing.T) {
	needsBudget(t)
	const each, size = 10_000, 1_000
	f := newFlow(t)
	f.cfg.Dispatcher.QueuedBytes = 64 << 20
	f.cfg.Dispatcher.Duplicates.Entries = 100_000
	ids := f.endpoints(100)
	f.send(each, size, ids...)
	begun := time.Now()
	p := f.spawn()
	idle, first := p.resident("VmRSS"), int64(0)
	for tenth := 1; tenth <= 10; tenth++ {
		f.receiver.WaitFor(t, tenth*each*len(ids)/10, 5*time.Minute)
		peak := p.resident("VmHWM")
		t.Logf("%3d %% delivered after %s: resident %d MiB, at most so far %d MiB",
			10*tenth, time.Since(begun).Round(time.Second), p.resident("VmRSS")>>20, peak>>20)
		if tenth == 1 {
			first = peak
		}
	}
	c := f.delivered(time.Minute)
	f.settled(20 * time.Second)
	peak := p.resident("VmHWM")
	t.Logf("%s; resident %d MiB idle, %d MiB at most in the first tenth and %d MiB in all; %d writes to hold",
		c, idle>>20, first>>20, peak>>20, f.endOf(f.names().Hold()))
	if peak > first+first/3 {
		t.Errorf("resident %d MiB, a third more than the %d MiB of the first tenth: it grows with the backlog", peak>>20, first>>20)
	}
	p.terminate()
}

// resident is a figure of the child's /proc/PID/status in bytes: VmRSS, or VmHWM, its peak.
func (c *child) resident(name string) int64 {
	c.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	must(c.t, err)
	found := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		c.t.Fatalf("no %s in /proc/%d/status", name, c.cmd.Process.Pid)
	}
	kib, err := strconv.ParseInt(string(found[1]), 10, 64)
	must(c.t, err)
	return kib << 10
}
