package logging

import (
	"log" //nolint:depguard // this is where it ends
	"log/slog"
	"strings"
)

// Standard makes what the standard library logs by itself lines of l, at level
// debug. It is for main functions: the standard logger is the whole process's.
//
// net/http quotes there what a peer sent outside of an answer, up to 4 KiB a line and
// as often as the peer likes; that can be anything, also what a receiver was sent. So
// a line ends where the quotation begins.
func Standard(l *slog.Logger) {
	log.SetFlags(0)
	log.SetOutput(standard{l})
}

type standard struct{ log *slog.Logger }

func (s standard) Write(line []byte) (int, error) {
	text, _, _ := strings.Cut(strings.TrimSpace(string(line)), `"`)
	s.log.Debug("standard library", "line", strings.TrimSpace(text))
	return len(line), nil
}
