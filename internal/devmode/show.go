package devmode

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/milena-project/milena/internal/attempts"
	"github.com/milena-project/milena/schemas"
)

const (
	statusEvery = 250 * time.Millisecond
	// lineQueue bounds the lines that wait for the terminal. A slow one must not
	// slow deliveries down: what does not fit is counted and not shown.
	lineQueue = 16384
)

// show is what people see of a run.
type show struct {
	screen *screen
	color  bool
	gauges func() Gauges // set before run
	lines  chan func(attempts.Style) string

	mu         sync.Mutex // guards what follows
	tally      *tally
	events     int
	deliveries int
	skipped    int
}

func newShow(c *Config, prefix string) *show {
	return &show{screen: &screen{out: c.Out, terminal: c.Terminal, width: c.Width}, color: c.Color,
		gauges: func() Gauges { return Gauges{} }, lines: make(chan func(attempts.Style) string, lineQueue), tally: newTally(prefix)}
}

// attempted must be quick: a dispatcher's goroutine waits.
func (s *show) attempted(a *schemas.Attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.add(a, time.Now())
	kept := *a
	s.queue(func(style attempts.Style) string { return style.Line(&kept) })
}

// breaker tells why an endpoint falls silent, and when it no longer is.
func (s *show) breaker(endpointID string, until time.Time) {
	at := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue(func(style attempts.Style) string { return style.Breaker(at, endpointID, until) })
}

func (s *show) queue(line func(attempts.Style) string) {
	select {
	case s.lines <- line:
	default:
		s.skipped++
	}
}

// sent counts an event and its deliveries.
func (s *show) sent(deliveries int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events++
	s.deliveries += deliveries
}

// run prints until ended is closed and all lines are out.
func (s *show) run(ended <-chan struct{}) {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		select {
		case line := <-s.lines:
			s.line(line)
		case <-tick.C:
			s.status()
		case <-ended:
			for {
				select {
				case line := <-s.lines:
					s.line(line)
				default:
					s.screen.setStatus("")
					return
				}
			}
		}
	}
}

func (s *show) line(text func(attempts.Style) string) {
	s.screen.line(text(attempts.Style{Color: s.color, Now: time.Now(), Short: true, Width: s.screen.columns()}))
}

func (s *show) status() {
	g := s.gauges()
	s.mu.Lock()
	text := s.tally.status(time.Now(), s.events, g)
	if s.skipped > 0 {
		text += fmt.Sprintf("  (%d lines not shown)", s.skipped)
	}
	s.mu.Unlock()
	s.screen.setStatus(text)
}

// end says what happened.
func (s *show) end(count func(endpoint string) Received) {
	var all Received
	for _, id := range []string{Good, Flaky, Dead} {
		c := count(id)
		all.Requests += c.Requests
		all.Verified += c.Verified
		all.Bad += c.Bad
	}
	s.mu.Lock()
	text := s.tally.summary(time.Now(), s.events, s.deliveries, all)
	s.mu.Unlock()
	s.screen.line("")
	s.screen.line(strings.TrimRight(text, "\n"))
}

// banner says what runs and what to try.
func (d *dev) banner(endpoints []endpoint) {
	line := func(format string, args ...any) { d.show.screen.line(fmt.Sprintf(format, args...)) }
	line("Milena on an embedded broker; its data is in %s and stays there.", d.cfg.DataDir)
	line("  Kafka protocol   %s", d.broker.Addr)
	line("  HTTP             http://%s/metrics and /readyz", d.loaded.HTTP.Addr)
	for _, e := range endpoints {
		line("  endpoint %-7s %s  %s", e.id, e.url, e.what)
	}
	if d.cfg.ForwardTo != "" {
		d.explainForward(line)
	}
	line("In another shell, in this directory:")
	if _, err := exec.LookPath("milena"); err != nil {
		line("  (milena is not on your PATH: go install ./cmd/milena puts it into $(go env GOPATH)/bin)")
	}
	if dir := d.cfg.DataDir; filepath.Clean(dir) != DefaultDataDir {
		line("  export MILENA_CONFIG=%s", strconv.Quote(filepath.Join(dir, configName)))
	}
	line("  milena endpoint create --url http://localhost:3000/hook --event-types 'test.*'")
	line("  milena send --type test.hello --data '{\"hello\":\"world\"}'")
	line("  milena attempts --follow")
	line("Ctrl-C ends it.")
	line("")
}
