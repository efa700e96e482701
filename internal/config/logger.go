package config

import (
	"io"
	"log/slog"

	"github.com/milena-project/milena/internal/logging"
)

// NewLogger writes log lines to w as the settings say; a burst of the same warning
// is one line and a count.
func (l Log) NewLogger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.Level)) // one of Choices
	options := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(logging.Quiet(slog.NewJSONHandler(w, options)))
	}
	return slog.New(logging.Quiet(slog.NewTextHandler(w, options)))
}
