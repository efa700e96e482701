package logging

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestABurstIsOneLineAndACount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(Quiet(slog.NewTextHandler(&out, nil)))
		for range 50 {
			log.Warn("no broker", "addr", "a:1", "err", time.Now().String())
			time.Sleep(250 * time.Millisecond)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[1], "repeated=39") {
			t.Errorf("50 lines in 12.5 s became %d:\n%s", len(lines), out.String())
		}
	})
}

func TestDifferentThingsAreDifferentLines(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(Quiet(slog.NewTextHandler(&out, nil)))
	log.Warn("no broker", "addr", "a:1")
	log.Warn("no broker", "addr", "b:1")
	log.With("group", "g").Warn("no broker", "addr", "a:1")
	log.Error("no broker", "addr", "a:1")
	log.Info("fine")
	log.Info("fine")
	if n := strings.Count(out.String(), "\n"); n != 6 {
		t.Errorf("%d lines, want 6:\n%s", n, out.String())
	}
}

func TestMemoryOfLinesIsBounded(t *testing.T) {
	s := &seen{lines: map[string]*line{}}
	for i := range 10 * maxLines {
		if _, write := s.pass(strings.Repeat("x", i%5000)+time.Duration(i).String(), time.Now()); !write {
			t.Fatal("a new line was kept back")
		}
	}
	if len(s.lines) > maxLines {
		t.Errorf("%d lines remembered", len(s.lines))
	}
}
