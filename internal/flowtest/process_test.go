package flowtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/dispatcher"
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
	opts := f.opts
	opts.Logger, opts.Version = f.logs, version
	a, err := app.New(cfg, opts)
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

// metric sums a counter or gauge of a process over its labels.
func metric(t *testing.T, a *app.App, name string) (sum float64) {
	t.Helper()
	return metricWith(t, a, name, "")
}

// metricWith sums only what has a label of that text.
func metricWith(t *testing.T, a *app.App, name, label string) (sum float64) {
	t.Helper()
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, name+" ") && !strings.HasPrefix(line, name+"{") || !strings.Contains(line, label) {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		must(t, err)
		sum += v
	}
	return sum
}

// interruptions counts attempts that a process began and did not count: on a machine
// that stood still for a second it makes them again.
func interruptions(t *testing.T, a *app.App) int {
	return int(metric(t, a, "milena_interrupted_total"))
}

// lane is what an endpoint's lane in a process is doing now; false: it has none.
func lane(t *testing.T, a *app.App, endpoint string) (state dispatcher.LaneState, ok bool) {
	t.Helper()
	w := httptest.NewRecorder()
	a.DebugHandler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/lanes/"+endpoint, nil))
	if w.Code != http.StatusOK {
		return state, false
	}
	must(t, json.Unmarshal(w.Body.Bytes(), &state))
	return state, true
}
