package devmode

import (
	"io"
	"sync"
	"unicode/utf8"
)

// screen writes lines above a status line. On a terminal the status line stays at
// the bottom and is written over; elsewhere it is left out, because a log has no
// bottom.
type screen struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	width    func() int // of the terminal now
	status   string     // what stands there
}

// columns is the width of the terminal; 0 if it is none.
func (s *screen) columns() int {
	if !s.terminal {
		return 0
	}
	return s.width()
}

const clearLine = "\r\x1b[K"

// line writes one line.
func (s *screen) line(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal {
		_, _ = io.WriteString(s.out, text+"\n")
		return
	}
	_, _ = io.WriteString(s.out, clearLine+text+"\n"+s.status)
}

// setStatus replaces the status line; empty takes it away.
func (s *screen) setStatus(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal || text == s.status {
		return
	}
	s.status = cut(text, s.width()-1)
	_, _ = io.WriteString(s.out, clearLine+s.status)
}

// cut keeps a status line on one row: one that wraps could not be written over.
func cut(text string, width int) string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width])
}

// Write lets a logger write above the status line.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal {
		return s.out.Write(p)
	}
	if _, err := io.WriteString(s.out, clearLine); err != nil {
		return 0, err
	}
	n, err := s.out.Write(p)
	_, _ = io.WriteString(s.out, s.status)
	return n, err
}
