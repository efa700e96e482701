//go:build kafka

package flowtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// The night of an SRE: 400,000 letters of 37 endpoints, a filter, a rate, and a laptop
// that dies three times. All figures are those of the receiver and of the broker.
const (
	nightLetters   = 400_000
	nightDeaths    = 1_000 // of them for real, at the receiver
	nightEndpoints = 37
	nightRate      = 4_000
	nightKills     = 3
	nightMemory    = 150 << 20
)

func TestSoakReplayOfFourHundredThousandLettersWithKills(t *testing.T) {
	needsBudget(t)
	f := newFlow(t, testkit.Compact())
	n := &night{flow: f, cli: build(t), groups: map[string]int64{}}
	for i := range nightEndpoints {
		id := fmt.Sprintf("ep%d", i)
		f.endpoint(id, preset("none"))
		n.ids = append(n.ids, id)
	}
	p := f.spawn()
	n.dieForReal()
	n.write(nightLetters-nightDeaths, true)
	n.summary()

	args := []string{"dlq", "replay", "--status", "5xx", "--status", "422", "--rate", strconv.Itoa(nightRate) + "/s",
		"--because", "mended", "--yes", "--max", strconv.Itoa(nightLetters)}
	before := f.endOf(f.names().Deliveries())
	run, unacknowledged := "", 0
	for k := range nightKills {
		r := n.start(args...)
		target := before + int64(len(n.selected))*int64(k+1)/(nightKills+2)
		testkit.Eventually(t, 3*time.Minute, func() string {
			if at := f.endOf(f.names().Deliveries()); at < target {
				return fmt.Sprintf("%d of %d deliveries are written: %s", at, target, r.said())
			}
			return ""
		})
		r.kill()
		n.memory(r)
		n.write(100, false) // they die after the snapshot
		if run == "" {
			run = n.runID()
		}
		open := n.unacknowledged(run)
		t.Logf("killed with %d writes that were not acknowledged, at %d MiB", open, r.peak>>20)
		unacknowledged += open
		n.stale(run)
		args = []string{"runs", "resume", run}
	}
	r := n.start(args...)
	must(t, r.wait())
	n.memory(r)
	t.Logf("the last runner: %s, %d MiB", r.said(), r.peak>>20)

	c := f.delivered(3 * time.Minute)
	f.settled(time.Minute)
	written := n.judgeRate(run)
	t.Logf("%s; %d signatures wrong; %d deliveries written of %d letters, %d writes were not acknowledged at the kills",
		c, f.receiver.Log.Invalid(), written, len(n.selected), unacknowledged)
	if repeats := written - len(n.selected); repeats > unacknowledged || c.Repeats > unacknowledged {
		t.Errorf("%d letters written again, %d repeats at the receiver, %d writes were not acknowledged", repeats, c.Repeats, unacknowledged)
	}
	if left := strings.TrimSpace(n.run("dlq", "count", "--status", "5xx,422")); left != strconv.Itoa(100*nightKills) {
		t.Errorf("%s letters are left of those selected, not the %d that died after the snapshot", left, 100*nightKills)
	}
	p.terminate()
}

// night is what the test knows of the letters.
type night struct {
	*flow

	cli      string
	ids      []string
	next     int64
	selected []string         // delivery ids that the filter selects
	groups   map[string]int64 // endpoint, reason and status
}

func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "milena")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/milena-project/milena/cmd/milena").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// dieForReal lets the receiver refuse, and mends it.
func (n *night) dieForReal() {
	n.t.Helper()
	per := nightDeaths / nightEndpoints // fewer than open a breaker
	for i, id := range n.ids {
		deaths := per
		if i < nightDeaths%nightEndpoints {
			deaths++
		}
		n.receiver.Script("/"+id, func(k int, _ *testkit.Received) testkit.Answer {
			if k <= deaths {
				return testkit.Answer{Status: 422}
			}
			return testkit.Answer{}
		})
		n.send(deaths, 400, id)
		n.groups[id+" exhausted 422"] += int64(deaths)
	}
	letters := n.awaitLetters(nightDeaths)
	n.settled(time.Minute)
	for id, l := range letters {
		n.selected = append(n.selected, id)
		n.want(l.EndpointID, l.Event.Source, l.Event.ID, l.Payload) // once more
	}
}

// write writes letters as the dispatcher does; of the first, three of four are to be
// selected.
func (n *night) write(count int, known bool) {
	n.t.Helper()
	w, err := kafka.NewWriter(n.cfg.KafkaConfig(n.logs), kafka.WithLinger(20*time.Millisecond))
	must(n.t, err)
	for range count {
		n.next++
		id := n.ids[n.next%int64(len(n.ids))]
		event := "letter-" + strconv.FormatInt(n.next, 10)
		part := kafka.Partition([]byte(id), int32(n.cfg.Topics.Partitions))
		d := schemas.Delivery{EndpointID: id, Payload: n.body(event, 500), Attempt: 1, LastStatus: 500 + int(n.next%3), Error: "the receiver was away",
			Origin: schemas.Origin{Topic: "orders", TopicID: [4]byte{1, 2, 3, 4}, Partition: part, Offset: n.next},
			Event:  schemas.Event{ID: event, Source: "/test", Type: "order.created", SpecVersion: "1.0"}}
		if known && n.next%4 == 0 {
			d.LastStatus = 404
		}
		l := schemas.NewLetter(d, schemas.ReasonExhausted, time.Now())
		rec := l.Record()
		w.Write(kafka.Message{Topic: n.names().DLQ(), Partition: part, Key: rec.Key, Value: rec.Value, Headers: rec.Headers}, nil)
		if !known {
			continue
		}
		n.groups[fmt.Sprintf("%s exhausted %d", id, d.LastStatus)]++
		if d.LastStatus != 404 {
			n.selected = append(n.selected, l.ID())
			n.want(id, "/test", event, d.Payload)
		}
	}
	must(n.t, w.Flush(n.t.Context()))
	must(n.t, w.Close(n.t.Context()))
}

// summary compares every group with what was written.
func (n *night) summary() {
	n.t.Helper()
	r := n.start("dlq", "summary", "--json")
	must(n.t, r.wait())
	n.memory(r)
	left := len(n.groups)
	for dec := json.NewDecoder(strings.NewReader(r.out.String())); ; left-- {
		var g dlq.Group
		if err := dec.Decode(&g); err == io.EOF {
			break
		} else if err != nil {
			n.t.Fatal(err)
		}
		if key := fmt.Sprintf("%s %s %d", g.EndpointID, g.Reason, g.Status); n.groups[key] != g.Count {
			n.t.Errorf("summary: %d of %s, not %d", g.Count, key, n.groups[key])
		}
	}
	if left != 0 {
		n.t.Errorf("summary: %d groups are missing", left)
	}
	n.t.Logf("summary of %d letters in %d groups: %s from start to end of the process, %d MiB", nightLetters, len(n.groups), r.took, r.peak>>20)
}

func (n *night) memory(r *runner) {
	n.t.Helper()
	if r.peak > nightMemory {
		n.t.Errorf("%s took %d MiB", r.cmd.Args[1:3], r.peak>>20)
	}
}

func (n *night) runID() string {
	n.t.Helper()
	var run struct {
		ID string `json:"id"`
	}
	must(n.t, json.NewDecoder(strings.NewReader(n.run("runs", "list", "--json"))).Decode(&run))
	return run.ID
}

// stale waits until a run whose runner was killed may be taken over.
func (n *night) stale(run string) {
	n.t.Helper()
	testkit.Eventually(n.t, 2*time.Minute, func() string {
		var st dlq.Status
		must(n.t, json.Unmarshal([]byte(n.run("runs", "show", run, "--json")), &st))
		if st.Live {
			return "the run is live"
		}
		return ""
	})
}

// unacknowledged is how many letters were written to deliveries and have no tombstone.
func (n *night) unacknowledged(run string) int {
	n.t.Helper()
	settled := map[string]bool{}
	for _, rec := range n.read(n.names().DLQ()) {
		if rec.Value == nil {
			settled[string(rec.Key)] = true
		}
	}
	open := map[string]bool{}
	n.written(run, func(d *schemas.Delivery, _ time.Time) {
		if key := schemas.LetterKey(d.ID(), d.Generation-1); !settled[key] {
			open[key] = true
		}
	})
	return len(open)
}

func (n *night) written(run string, fn func(*schemas.Delivery, time.Time)) {
	n.t.Helper()
	for _, rec := range n.read(n.names().Deliveries()) {
		d, err := schemas.ParseDelivery(rec)
		must(n.t, err)
		if d.Run == run {
			fn(&d, rec.Timestamp)
		}
	}
}

// judgeRate looks at every window of ten seconds after the first two of each runner,
// by the broker's time, and returns how many deliveries were written.
func (n *night) judgeRate(run string) int {
	n.t.Helper()
	const window, pause = 10 * time.Second, 5 * time.Second
	var at []time.Time
	n.written(run, func(_ *schemas.Delivery, written time.Time) { at = append(at, written) })
	slices.SortFunc(at, time.Time.Compare)
	least, most, windows := 1e9, 0.0, 0
	for from := 0; from < len(at); {
		to := from + 1
		for to < len(at) && at[to].Sub(at[to-1]) < pause {
			to++
		}
		one := at[from:to]
		for s := one[0].Add(2 * time.Second); !s.Add(window).After(one[len(one)-1]); s = s.Add(100 * time.Millisecond) {
			lo, _ := slices.BinarySearchFunc(one, s, time.Time.Compare)
			hi, _ := slices.BinarySearchFunc(one, s.Add(window), time.Time.Compare)
			rate := float64(hi-lo) / window.Seconds()
			least, most, windows = min(least, rate), max(most, rate), windows+1
		}
		from = to
	}
	n.t.Logf("asked for %d/s: %d windows of 10 s hold %.0f to %.0f/s", nightRate, windows, least, most)
	if windows == 0 || least < nightRate*0.95 || most > nightRate*1.05 {
		n.t.Errorf("%d windows, %.0f to %.0f/s", windows, least, most)
	}
	return len(at)
}

// runner is one execution of the command line.
type runner struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   output
	err   bytes.Buffer
	began time.Time
	done  chan struct{}
	bad   error

	// To be read after its end.
	took time.Duration
	peak int64 // bytes of memory that it had resident at most
	read int64 // bytes that it read of files and connections
}

// output is what it wrote to standard output, and when that began. Of a list of
// millions only the number of lines is kept.
type output struct {
	text  strings.Builder
	first time.Time
	lines int
	count bool
}

func (o *output) Write(b []byte) (int, error) {
	if o.first.IsZero() {
		o.first = time.Now()
	}
	if o.lines += bytes.Count(b, []byte("\n")); o.count {
		return len(b), nil
	}
	return o.text.Write(b)
}

func (o *output) String() string { return o.text.String() }

func (n *night) start(args ...string) *runner {
	n.t.Helper()
	return n.startInto(&runner{}, args...)
}

func (n *night) startInto(r *runner, args ...string) *runner {
	n.t.Helper()
	r.t, r.done, r.began = n.t, make(chan struct{}), time.Now()
	r.cmd = exec.CommandContext(n.t.Context(), n.cli, args...)
	r.cmd.Dir = n.t.TempDir() // no configuration of the tree's
	r.cmd.Env = append(ownEnv(), "MILENA_KAFKA_BROKERS="+strings.Join(n.cluster.brokers(), ","), "MILENA_PREFIX="+n.cfg.Prefix)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.err
	must(n.t, r.cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- r.cmd.Wait() }()
	go func() {
		defer close(r.done)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case r.bad = <-ended:
				r.took = time.Since(r.began)
				tick.Stop()
				return
			case <-tick.C:
				r.peak = max(r.peak, procFigure(r.cmd.Process.Pid, "status", "VmHWM:")<<10)
				r.read = max(r.read, procFigure(r.cmd.Process.Pid, "io", "rchar:"))
			}
		}
	}()
	return r
}

// ownEnv is the environment without what is meant for tests.
func ownEnv() (env []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "MILENA_") {
			env = append(env, e)
		}
	}
	return env
}

// procFigure is a figure of a process, as /proc/PID/file has it; 0 if it is gone.
func procFigure(pid int, file, name string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), name)
	n, _ := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64)
	return n
}

func (r *runner) wait() error {
	<-r.done
	if r.bad != nil {
		return fmt.Errorf("milena %s: %w: %s", strings.Join(r.cmd.Args[1:], " "), r.bad, r.said())
	}
	return nil
}

func (r *runner) kill() {
	must(r.t, r.cmd.Process.Kill())
	<-r.done
}

// said is the end of what it said, once it has ended.
func (r *runner) said() string {
	select {
	case <-r.done:
	default:
		return "it is running"
	}
	text := strings.TrimSpace(r.err.String())
	return text[max(0, len(text)-300):]
}

func (n *night) run(args ...string) string {
	n.t.Helper()
	r := n.start(args...)
	must(n.t, r.wait())
	return r.out.String()
}
