package realkafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// starter forks from one OS thread that lives as long as it does. The kernel
// sends a child its parent-death signal when the *thread* that forked it ends,
// so a goroutine that the scheduler moves about must not fork brokers.
type starter struct {
	work chan func()
	done chan struct{}
}

func newStarter() *starter {
	s := &starter{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for f := range s.work {
			f()
		}
	}()
	return s
}

func (s *starter) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, // when the test process dies
		Setpgid:   true,            // Ctrl-C in a terminal is for the test, which then ends its brokers
	}
	result := make(chan error, 1)
	s.work <- func() { result <- cmd.Start() }
	return <-result
}

func (s *starter) close() {
	close(s.work)
	<-s.done
}

// broker is one node and, while it runs, its process.
type broker struct {
	id    int // node id, from 1
	dir   string
	ports map[Listener]int

	mu     sync.Mutex
	cmd    *exec.Cmd     // nil while it is down
	exited chan struct{} // closed when cmd has been waited for
}

var errDown = errors.New("the broker is down")

func (b *broker) logPath() string { return filepath.Join(b.dir, "broker.log") }

// jvmFlags make a small JVM that is up quickly: the first compiler alone, and
// the collector that has no threads of its own.
func jvmFlags(brokers int) []string {
	heap := "-Xmx512m"
	if brokers > 1 {
		heap = "-Xmx400m"
	}
	return []string{heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"}
}

func (b *broker) java(ctx context.Context, libs string, brokers int, args ...string) *exec.Cmd {
	flags := append(jvmFlags(brokers), "-cp", filepath.Join(libs, "*"),
		"-Dlog4j2.configurationFile="+filepath.Join(b.dir, "log4j2.properties"),
		"-Dlog4j.configuration=file:"+filepath.Join(b.dir, "log4j.properties"))
	return exec.CommandContext(ctx, "java", append(flags, args...)...)
}

// format prepares the storage, with the SCRAM users in it: they must exist
// before anyone can log in to make them.
func (b *broker) format(ctx context.Context, libs, clusterID string, c *Config) error {
	args := []string{"kafka.tools.StorageTool", "format", "-t", clusterID, "-c", filepath.Join(b.dir, "server.properties")}
	for name, password := range c.Users {
		for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
			args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, name, password))
		}
	}
	out, err := b.java(ctx, libs, c.Brokers, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("format the storage of broker %d: %w\n%s", b.id, err, out)
	}
	return nil
}

// launch starts the process; it does not wait for the broker to be ready.
func (b *broker) launch(s *starter, libs string, brokers int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd != nil {
		return fmt.Errorf("broker %d is running", b.id)
	}
	logFile, err := os.OpenFile(b.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }() // the child has its own
	// The broker outlives any one call; its end is a signal, never a context.
	cmd := b.java(context.Background(), libs, brokers, "kafka.Kafka", filepath.Join(b.dir, "server.properties"))
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := s.start(cmd); err != nil {
		return err
	}
	exited := make(chan struct{})
	b.cmd, b.exited = cmd, exited
	go func() {
		_ = cmd.Wait() // how it ended is in its log; most are killed
		b.mu.Lock()
		b.cmd = nil
		b.mu.Unlock()
		close(exited)
	}()
	return nil
}

// signal sends sig to the running process.
func (b *broker) signal(sig syscall.Signal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		return fmt.Errorf("broker %d: %w", b.id, errDown)
	}
	return b.cmd.Process.Signal(sig)
}

// end signals the process and waits for it; after grace it is killed.
func (b *broker) end(sig syscall.Signal, grace time.Duration) error {
	exited := b.gone()
	if err := b.signal(sig); err != nil {
		return err
	}
	if sig != syscall.SIGKILL {
		_ = b.signal(syscall.SIGCONT) // a frozen process takes no signal
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-exited:
		return nil
	case <-timer.C:
		_ = b.signal(syscall.SIGKILL)
		<-exited
		return fmt.Errorf("broker %d did not end within %s after %s", b.id, grace, sig)
	}
}

func (b *broker) running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cmd != nil
}

// gone is closed when the process that was started last has ended.
func (b *broker) gone() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.exited
}

// logTail returns the last bytes of the broker's log.
func (b *broker) logTail() string {
	const most = 4 << 10
	all, err := os.ReadFile(b.logPath())
	if err != nil {
		return err.Error()
	}
	if len(all) > most {
		all = all[len(all)-most:]
	}
	return string(bytes.TrimSpace(all))
}
