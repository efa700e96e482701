package flowtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/testkit"
)

// process is one Milena in this test's process.
type process struct {
	agent string // the User-Agent of its requests
	app   *app.App
	stop  context.CancelFunc
	done  chan struct{}
	err   error
}

// start runs a process until the test ends or it is stopped.
func (f *flow) start(edit ...func(*config.Config)) *process {
	f.t.Helper()
	cfg := f.cfg
	for _, e := range edit {
		e(&cfg)
	}
	f.members++
	version := fmt.Sprintf("member%d", f.members)
	a, err := app.New(cfg, app.Options{Logger: f.logs, Version: version})
	must(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{agent: "Milena/" + version, app: a, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = a.Run(ctx)
	}()
	f.t.Cleanup(func() { p.end(f.t) })
	return p
}

// end stops a process as SIGTERM does and waits for it.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.stop()
	<-p.done
	if p.err != nil {
		t.Errorf("process ended with %v", p.err)
	}
}

// ready waits until the process says that it is ready.
func (f *flow) ready(p *process) {
	f.t.Helper()
	testkit.Eventually(f.t, 30*time.Second, func() string {
		if err := p.app.Ready(); err != nil {
			return err.Error()
		}
		return ""
	})
}
