package retrytopics

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// childEnv makes the test binary a releaser: a process of its own, whose memory can
// be measured and which can be killed.
const childEnv = "MILENA_TEST_RELEASER"

type childConfig struct {
	Brokers              []string
	Prefix               string
	TierPartitions       int32
	DeliveriesPartitions int32
	SessionTimeout       time.Duration
}

// childReport is what a child prints when it is told to end.
type childReport struct {
	Released        int
	P50, P99, Max   time.Duration // lateness, from not-before to the ack
	TierWrites      int
	FirstAck        time.Time
	LastAck         time.Time
	PeakRSS, HeldKB int64
	HeldMost        int
}

type childHooks struct {
	mu     sync.Mutex
	late   []int32 // µs
	report childReport
}

func (h *childHooks) OnReleased(late time.Duration) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.late = append(h.late, int32(min(late, 30*time.Minute)/time.Microsecond))
	if h.report.FirstAck.IsZero() {
		h.report.FirstAck = now
	}
	h.report.LastAck = now
}

func (h *childHooks) OnParked(time.Duration) {
	h.mu.Lock()
	h.report.TierWrites++
	h.mu.Unlock()
}

func (h *childHooks) OnHeld(records int, bytes int64) {
	h.mu.Lock()
	h.report.HeldMost, h.report.HeldKB = max(h.report.HeldMost, records), max(h.report.HeldKB, bytes>>10)
	h.mu.Unlock()
}

func (h *childHooks) end() childReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.report
	if r.Released = len(h.late); r.Released > 0 {
		slices.Sort(h.late)
		at := func(q float64) time.Duration {
			return time.Duration(h.late[int(q*float64(len(h.late)-1))]) * time.Microsecond
		}
		r.P50, r.P99, r.Max = at(0.50), at(0.99), at(1)
	}
	r.PeakRSS = peakRSS()
	return r
}

// peakRSS is the process's largest resident set in bytes; 0 where the system does not say.
func peakRSS() int64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// runChild runs a releaser until it is told to end, if this process is to be one.
func runChild() bool {
	text := os.Getenv(childEnv)
	if text == "" {
		return false
	}
	var c childConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg := kafka.Config{Brokers: c.Brokers, Names: schemas.Names{Prefix: c.Prefix},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	w, err := kafka.NewWriter(cfg)
	if err != nil {
		panic(err)
	}
	hooks := &childHooks{}
	all := []Hook{hooks}
	parker, err := NewParker(ParkerConfig{Writer: w, DeadLetter: &letters{}, Names: cfg.Names, Partitions: c.TierPartitions, Hooks: all})
	if err != nil {
		panic(err)
	}
	rc := ReleaserConfig{Kafka: cfg, Writer: w, Parker: parker, DeadLetter: &letters{}, DeliveriesPartitions: c.DeliveriesPartitions, Hooks: all}
	rc.Consume.SessionTimeout = c.SessionTimeout
	r, err := NewReleaser(rc)
	if err != nil {
		panic(err)
	}
	if err := r.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	flush, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := w.Close(flush); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(hooks.end()); err != nil {
		panic(err)
	}
	return true
}

// child is a releaser in a process of its own.
type child struct {
	t   testing.TB
	cmd *exec.Cmd
	out io.ReadCloser
}

func startChild(t testing.TB, c childConfig) *child {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ch := &child{t: t, cmd: cmd, out: out}
	t.Cleanup(ch.kill)
	return ch
}

// kill is kill -9. It does nothing to one that has ended.
func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

// end ends it in good order and returns its report.
func (c *child) end() (r childReport) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	if err := json.NewDecoder(c.out).Decode(&r); err != nil {
		c.t.Fatalf("report of the releaser: %v", err)
	}
	if err := c.cmd.Wait(); err != nil {
		c.t.Fatal(err)
	}
	return r
}
