package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/schemas"
)

// child is milena in a process of its own.
func child(t *testing.T, env []string, args string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self)
	c.Env = append(append(os.Environ(), env...), asProgram+"="+args)
	return c
}

func lastRun(t *testing.T, env []string) (st dlq.Status) {
	t.Helper()
	if err := json.Unmarshal([]byte(must(t, env, "runs", "list", "--json")), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

func TestARunWhoseTerminalIsClosedEndsCleanly(t *testing.T) {
	fake, env := cluster(t)
	bury(t, fake, "shop-1", strings.Split("123456789", "")...)
	c := child(t, env, "dlq replay --all --yes --rate 1/m")
	said := &watcher{text: "milena: run run-", seen: func() { _ = c.Process.Signal(syscall.SIGHUP) }}
	c.Stderr = said
	_ = c.Run()
	st := lastRun(t, env)
	if text := said.all.String(); c.ProcessState.ExitCode() != exitFailed || !strings.Contains(text, "the terminal was closed; milena runs resume "+st.ID) {
		t.Errorf("exit %d, %s", c.ProcessState.ExitCode(), text)
	}
	if st.State != schemas.RunCancelled || st.Live {
		t.Errorf("%+v", st)
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
