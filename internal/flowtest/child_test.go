package flowtest

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
	"runtime/metrics"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/logging"
	"github.com/milena-project/milena/internal/testkit"
)

// childConfig is the environment variable that makes the test binary a Milena: the
// configuration as JSON. childVersion names it in the User-Agent of its requests.
const (
	childConfig  = "MILENA_FLOWTEST_CONFIG"
	childVersion = "MILENA_FLOWTEST_VERSION"
)

// report is what a child says of itself, one JSON line each time.
type report struct {
	NotReady string `json:"not_ready"`
	Heap     int64  `json:"heap"` // bytes of live and not yet swept objects
}

// runChild is the child's main. It ends by SIGTERM, or when the test that started
// it is gone.
func runChild() int {
	var cfg config.Config
	if err := json.Unmarshal([]byte(os.Getenv(childConfig)), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the test's end of it closes with the test
		os.Exit(3)
	}()
	level := slog.LevelWarn
	if os.Getenv("MILENA_LOG") != "" {
		level = slog.LevelInfo
	}
	logs := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	logging.Standard(logs)
	a, err := app.New(cfg, app.Options{Logger: logs, Version: os.Getenv(childVersion), Consume: heartbeats})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go tellParent(a)
	if err := a.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func tellParent(a *app.App) {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	out := json.NewEncoder(os.Stdout)
	for range time.Tick(50 * time.Millisecond) {
		metrics.Read(heap)
		r := report{Heap: int64(heap[0].Value.Uint64())} //nolint:gosec // no heap is that large
		if err := a.Ready(); err != nil {
			r.NotReady = err.Error()
		}
		if out.Encode(&r) != nil {
			return
		}
	}
}

// child is one Milena in a process of its own, which can be killed.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	agent string        // the User-Agent of its requests
	done  chan struct{} // closed when the process has ended; err is set then
	err   error

	mu   sync.Mutex
	last report // guarded by mu
	peak int64  // of Heap; guarded by mu
}

// spawn starts a child and waits until it is ready.
func (f *flow) spawn(edit ...func(*config.Config)) *child {
	f.t.Helper()
	cfg := f.cfg
	for _, e := range edit {
		e(&cfg)
	}
	text, err := json.Marshal(&cfg)
	must(f.t, err)
	f.members++
	version := fmt.Sprintf("member%d", f.members)
	self, err := os.Executable()
	must(f.t, err)
	c := &child{t: f.t, agent: "Milena/" + version, done: make(chan struct{}), last: report{NotReady: "not started"}}
	c.cmd = exec.CommandContext(context.WithoutCancel(f.t.Context()), self)
	c.cmd.Env = append(os.Environ(), childConfig+"="+string(text), childVersion+"="+version)
	logs, err := os.CreateTemp(f.t.TempDir(), version)
	must(f.t, err)
	c.cmd.Stderr = logs
	stdin, err := c.cmd.StdinPipe()
	must(f.t, err)
	stdout, err := c.cmd.StdoutPipe()
	must(f.t, err)
	must(f.t, c.cmd.Start())
	go c.follow(stdout)
	f.t.Cleanup(func() {
		_ = c.cmd.Process.Signal(syscall.SIGCONT)
		c.kill()
		_ = stdin.Close()
		if f.t.Failed() {
			f.t.Logf("%s ended with %v:\n%s", version, c.err, tail(logs, 8<<10))
		}
		_ = logs.Close()
	})
	testkit.Eventually(f.t, 30*time.Second, func() string { return c.report().NotReady })
	return c
}

// follow reads the child's reports until its end.
func (c *child) follow(stdout io.Reader) {
	defer close(c.done)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue
		}
		c.mu.Lock()
		c.last, c.peak = r, max(c.peak, r.Heap)
		c.mu.Unlock()
	}
	c.err = c.cmd.Wait()
}

func (c *child) report() report {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// peakHeap is the highest that was reported so far.
func (c *child) peakHeap() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peak
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

func (c *child) freeze() { must(c.t, c.cmd.Process.Signal(syscall.SIGSTOP)) }
func (c *child) thaw()   { must(c.t, c.cmd.Process.Signal(syscall.SIGCONT)) }

// terminate ends the child by SIGTERM and returns how long that took; meanwhile is
// called while it ends. Anything but exit code 0 fails the test.
func (c *child) terminate(meanwhile ...func()) time.Duration {
	c.t.Helper()
	begun := time.Now()
	must(c.t, c.cmd.Process.Signal(syscall.SIGTERM))
	for _, f := range meanwhile {
		f()
	}
	select {
	case <-c.done:
	case <-time.After(testkit.Patience * time.Minute):
		c.t.Fatal("still running minutes after SIGTERM")
	}
	if c.err != nil {
		c.t.Errorf("after SIGTERM: %v", c.err)
	}
	return time.Since(begun)
}

func tail(f *os.File, n int64) string {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	b := make([]byte, min(n, size))
	_, _ = f.ReadAt(b, size-int64(len(b)))
	return string(b)
}
