package config

import (
	"io"
	"log/slog"

	"github.com/milena-project/milena/internal/logging"
)

// NewLogger writes log lines to w as the settings say; a burst of the same warning
// is one line and a count. level is set to theirs, and may be changed later; nil: it
// stays as it is.
func (l Log) NewLogger(w io.Writer, level *slog.LevelVar) *slog.Logger {
	if level == nil {
		level = new(slog.LevelVar)
	}
	level.Set(l.SlogLevel())
	options := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(logging.Quiet(slog.NewJSONHandler(w, options)))
	}
	return slog.New(logging.Quiet(slog.NewTextHandler(w, options)))
}

// SlogLevel is the level as slog has it.
func (l Log) SlogLevel() (level slog.Level) {
	_ = level.UnmarshalText([]byte(l.Level)) // one of Choices
	return level
}
