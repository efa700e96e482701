// Package logging keeps a process's log readable: a burst of the same line is one
// line and a count. cmd/milena and internal/devmode put it in front of slog's handlers.
package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Window is how long the same line is kept back after it was written.
const Window = 10 * time.Second

// maxLines bounds what is remembered; beyond it every line is written.
const maxLines = 1024

// Attempt is the message of the wide line that each attempt has. It is never kept
// back: each is another fact.
const Attempt = "attempt"

// Quiet returns a handler that writes a line of level warn or above once in every
// Window: the same level and message, with the same values of the attributes that
// name a thing (endpoint, topic, partition, group, broker). The next one that is
// written says how many were kept back as the attribute repeated. Lines below warn
// pass, and so do those of attempts.
func Quiet(next slog.Handler) slog.Handler {
	return &quiet{next: next, seen: &seen{lines: map[string]*line{}}}
}

type quiet struct {
	next   slog.Handler
	prefix string // attributes of With that name a thing
	seen   *seen
}

type seen struct {
	mu    sync.Mutex
	lines map[string]*line
}

type line struct {
	written time.Time
	kept    int
}

// naming are the attributes that make two lines different ones.
var naming = map[string]bool{
	"endpoint_id": true, "topic": true, "partition": true, "group": true, "broker": true, "addr": true, "run": true,
}

func (q *quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return q.next.Enabled(ctx, level)
}

func (q *quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn || r.Message == Attempt {
		return q.next.Handle(ctx, r)
	}
	key := r.Level.String() + r.Message + q.prefix
	r.Attrs(func(a slog.Attr) bool {
		key += named(a)
		return true
	})
	kept, write := q.seen.pass(key, r.Time)
	if !write {
		return nil
	}
	if kept > 0 {
		r.AddAttrs(slog.Int("repeated", kept))
	}
	return q.next.Handle(ctx, r)
}

func named(a slog.Attr) string {
	if !naming[a.Key] {
		return ""
	}
	return "\x00" + a.Key + "=" + a.Value.String()
}

// pass reports whether a line may be written, and how many like it were kept back.
func (s *seen) pass(key string, at time.Time) (kept int, write bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[key]
	if l == nil {
		if len(s.lines) >= maxLines {
			s.forget(at)
		}
		if len(s.lines) < maxLines {
			s.lines[key] = &line{written: at}
		}
		return 0, true
	}
	if at.Sub(l.written) < Window {
		l.kept++
		return 0, false
	}
	kept, l.kept, l.written = l.kept, 0, at
	return kept, true
}

// forget drops what has not been repeated for a while.
func (s *seen) forget(at time.Time) {
	for key, l := range s.lines {
		if at.Sub(l.written) >= Window {
			delete(s.lines, key)
		}
	}
}

func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *q
	for _, a := range attrs {
		c.prefix += named(a)
	}
	c.next = q.next.WithAttrs(attrs)
	return &c
}

func (q *quiet) WithGroup(name string) slog.Handler {
	c := *q
	c.next = q.next.WithGroup(name)
	return &c
}
