package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// child is milena in a process of its own, which sees no setting of the machine's.
func child(t *testing.T, env []string, args string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self)
	machine := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MILENA_") })
	c.Env = append(append(machine, env...), asProgram+"="+args)
	return c
}

func lastRun(t *testing.T, env []string) (st dlq.Status) {
	t.Helper()
	if err := json.Unmarshal([]byte(must(t, env, "runs", "list", "--json")), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

func TestARunThatASignalEndsSaysExactlyWhatItHasWritten(t *testing.T) {
	// Under nohup SIGHUP is ignored, by children too, unless whoever starts them listens to it.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	for sent, want := range map[os.Signal]string{syscall.SIGHUP: "the terminal was closed", os.Interrupt: "interrupt signal received"} {
		fake, env := cluster(t)
		bury(t, fake, "shop-1", strings.Split(strings.Repeat("123456789", 100), "")...)
		c := child(t, env, "dlq replay --all --yes --rate 10/s")
		var said bytes.Buffer
		c.Stderr = &said
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		left := func() (n int64) {
			_, _ = fmt.Sscan(must(t, env, "dlq", "count"), &n)
			return n
		}
		testkit.Eventually(t, 30*time.Second, func() string { // it is at work
			if n := left(); n == 900 {
				return "nothing is settled"
			}
			return ""
		})
		_ = c.Process.Signal(sent)
		_ = c.Wait()
		st := lastRun(t, env)
		if text := said.String(); c.ProcessState.ExitCode() != exitFailed || !strings.Contains(text, want+"; milena runs resume "+st.ID) {
			t.Errorf("%s: exit %d, %s", sent, c.ProcessState.ExitCode(), text)
		}
		if n := left(); st.State != schemas.RunCancelled || st.Counts.Written != 900-n {
			t.Errorf("%s: %+v, %d left", sent, st, n)
		}
	}
}

func TestAnExportThatNobodyReadsFailsItsRun(t *testing.T) {
	fake, env := cluster(t)
	bury(t, fake, "shop-1", "1", "2")
	c := child(t, env, "dlq discard --all --yes --because test --export-to -")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	c.Stdout, c.Stderr = write, &said
	_ = c.Run()
	st := lastRun(t, env)
	if c.ProcessState.ExitCode() != exitFailed || !strings.Contains(said.String(), "nothing was discarded, because the export failed: ") || !strings.Contains(said.String(), "broken pipe") {
		t.Errorf("%s, %s", c.ProcessState, said.String())
	}
	if st.State != schemas.RunFailed || st.Live {
		t.Errorf("%+v", st)
	}
}
