package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/testkit"
)

// screen is a terminal, and what a program has written on it.
type screen struct {
	t        *testing.T
	keyboard *os.File // what a person types goes in here
	tty      *os.File // the program's end

	mu   sync.Mutex
	seen bytes.Buffer // guarded by mu
}

func newScreen(t *testing.T) *screen {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 120}); err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, keyboard: master, tty: tty}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(s, master) // ends with an error when the program's end is closed
	}()
	t.Cleanup(func() {
		_, _ = master.WriteString("\n") // for whoever was left reading: a terminal's reads are not ended by Close
		_ = tty.Close()
		_ = master.Close()
		<-read
	})
	return s
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.Write(b)
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

// shows waits until a text is on the screen; meanwhile is called each time it looks.
func (s *screen) shows(text string, meanwhile func()) {
	s.t.Helper()
	testkit.Eventually(s.t, time.Minute, func() string {
		if meanwhile != nil {
			meanwhile()
		}
		if have := s.text(); !strings.Contains(have, text) {
			return "no " + strconv.Quote(text) + " in " + strconv.Quote(have)
		}
		return ""
	})
}

// replay runs `milena dlq replay --all` for a person.
func (s *screen) replay(ctx context.Context, env []string) (code func() int) {
	p := &program{in: s.tty, out: io.Discard, err: s.tty, environ: env}
	ended := make(chan int, 1)
	go func() { ended <- p.run(ctx, []string{"dlq", "replay", "--all"}) }()
	return func() int { return <-ended }
}

func TestAPersonIsShownWhatAReplayWouldDoAndAsked(t *testing.T) {
	fake, env := cluster(t)
	bury(t, fake, "shop-1", "1", "2", "3")
	left := func(want string) {
		t.Helper()
		if res := run(t, "", env, "dlq", "count"); res.out != want+"\n" {
			t.Errorf("%s are left, want %s", res.out, want)
		}
	}
	const question = "replay 3 letters? [y/N] "
	for _, answer := range []string{"n\n", "\n", "yesterday\n"} {
		s := newScreen(t)
		code := s.replay(t.Context(), env)
		s.shows(question, nil)
		if !strings.Contains(s.text(), "3 of 3 to replay") {
			t.Errorf("nothing is said before the question: %q", s.text())
		}
		if _, err := s.keyboard.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		if c := code(); c != exitFailed {
			t.Errorf("%q: exit %d", answer, c)
		}
		s.shows("nothing was done", nil)
	}
	left("3")

	s := newScreen(t)
	ctx, interrupt := context.WithCancel(t.Context())
	code := s.replay(ctx, env)
	s.shows(question, nil)
	interrupt()
	if c := code(); c != exitFailed {
		t.Errorf("Ctrl-C: exit %d", c)
	}
	left("3")

	s = newScreen(t)
	code = s.replay(t.Context(), env)
	s.shows(question, nil)
	if _, err := s.keyboard.WriteString("y\n"); err != nil {
		t.Fatal(err)
	}
	if c := code(); c != exitDone {
		t.Errorf("yes: exit %d, %q", c, s.text())
	}
	s.shows("is done: 3 of 3 written", nil)
	left("0")
}

func TestAPersonSeesABarAndItsEnd(t *testing.T) {
	s := newScreen(t)
	p := newProgress(s.tty, 200, true)
	p.say("run-x")
	s.shows("run-x", nil)
	s.shows("80 / 200", func() { p.update(dlq.Progress{Settled: 70, Skipped: 10}) })
	for _, part := range []string{"40 %", "/s", "left"} {
		s.shows(part, nil)
	}
	p.end()
	p.end() // it may be called again
	p.say("delivered 80")
	s.shows("milena: delivered 80", nil)
}

func TestNothingCompressedIsWrittenToATerminal(t *testing.T) {
	s := newScreen(t)
	var said bytes.Buffer
	p := &program{in: s.tty, out: s.tty, err: &said, environ: []string{"MILENA_KAFKA_BROKERS=127.0.0.1:1"}}
	if code := p.run(t.Context(), []string{"dlq", "export", "--gzip"}); code != exitUsage || !strings.Contains(said.String(), "say --to FILE.gz") {
		t.Errorf("exit code %d: %s", code, &said)
	}
}
