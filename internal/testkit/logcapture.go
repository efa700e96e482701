package testkit

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// LogCapture is a slog.Handler that keeps what was logged, so that a test can
// ask for it; when the test fails it prints the last 200 lines. Safe for
// concurrent use.
type LogCapture struct {
	state  *captureState // shared by all handlers derived from this one
	prefix string        // open groups, each with a trailing full stop
	attrs  []slog.Attr   // keys already prefixed
}

type captureState struct {
	mu    sync.Mutex
	lines []LogLine
}

// LogLine is one captured line.
type LogLine struct {
	Time    time.Time
	Level   slog.Level
	Message string
	// Attrs holds the resolved attributes; group names are joined by full stops.
	Attrs map[string]any
}

// maxLogLines bounds a capture; the oldest lines go first.
const maxLogLines = 10_000

// printedOnFailure is how many lines a failed test shows.
const printedOnFailure = 200

// NewLogCapture makes a capture of all levels.
func NewLogCapture(t testing.TB) *LogCapture {
	t.Helper()
	c := &LogCapture{state: &captureState{}}
	t.Cleanup(func() {
		if t.Failed() {
			lines := c.Lines()
			lines = lines[max(0, len(lines)-printedOnFailure):]
			for _, l := range lines {
				t.Log(l.String())
			}
		}
	})
	return c
}

// Logger returns a logger that writes into the capture.
func (c *LogCapture) Logger() *slog.Logger { return slog.New(c) }

// From returns a logger that writes what is of that level or above into the capture.
func (c *LogCapture) From(level slog.Level) *slog.Logger { return slog.New(from{c, level}) }

type from struct {
	slog.Handler

	level slog.Level
}

func (h from) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h from) WithAttrs(attrs []slog.Attr) slog.Handler {
	return from{h.Handler.WithAttrs(attrs), h.level}
}

func (h from) WithGroup(name string) slog.Handler { return from{h.Handler.WithGroup(name), h.level} }

// Enabled says yes to every level.
func (c *LogCapture) Enabled(context.Context, slog.Level) bool { return true }

// Handle keeps a record.
func (c *LogCapture) Handle(_ context.Context, r slog.Record) error {
	line := LogLine{Time: r.Time, Level: r.Level, Message: r.Message, Attrs: map[string]any{}}
	for _, a := range c.attrs {
		line.add("", a)
	}
	r.Attrs(func(a slog.Attr) bool {
		line.add(c.prefix, a)
		return true
	})
	s := c.state
	s.mu.Lock()
	if len(s.lines) == maxLogLines {
		s.lines = append(s.lines[:0], s.lines[maxLogLines/2:]...)
	}
	s.lines = append(s.lines, line)
	s.mu.Unlock()
	return nil
}

// WithAttrs derives a handler that adds attributes.
func (c *LogCapture) WithAttrs(attrs []slog.Attr) slog.Handler {
	d := *c
	d.attrs = append([]slog.Attr(nil), c.attrs...)
	for _, a := range attrs {
		a.Key = c.prefix + a.Key
		d.attrs = append(d.attrs, a)
	}
	return &d
}

// WithGroup derives a handler that prefixes the keys of later attributes.
func (c *LogCapture) WithGroup(name string) slog.Handler {
	d := *c
	if name != "" {
		d.prefix += name + "."
	}
	return &d
}

func (l *LogLine) add(prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		l.Attrs[prefix+a.Key] = v.Any()
		return
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, g := range v.Group() {
		l.add(prefix, g)
	}
}

// String writes a line with its attributes.
func (l LogLine) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", l.Time.Format("15:04:05.000"), l.Level, l.Message)
	for _, k := range slices.Sorted(maps.Keys(l.Attrs)) {
		fmt.Fprintf(&b, " %s=%v", k, l.Attrs[k])
	}
	return b.String()
}

// Lines copies what was captured so far.
func (c *LogCapture) Lines() []LogLine {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	return append([]LogLine(nil), c.state.lines...)
}

// Find returns the lines whose text, with attributes, contains all of parts.
func (c *LogCapture) Find(parts ...string) []LogLine {
	var out []LogLine
	for _, l := range c.Lines() {
		if l.contains(parts) {
			out = append(out, l)
		}
	}
	return out
}

func (l *LogLine) contains(parts []string) bool {
	text := l.String()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// Await waits for a line that contains all of parts and returns it; the test
// fails after timeout times Patience.
func (c *LogCapture) Await(t testing.TB, timeout time.Duration, parts ...string) LogLine {
	t.Helper()
	var found LogLine
	Eventually(t, timeout, func() string {
		lines := c.Find(parts...)
		if len(lines) == 0 {
			return fmt.Sprintf("no log line with %q", parts)
		}
		found = lines[0]
		return ""
	})
	return found
}
