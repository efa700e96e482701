package main

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/config"
)

// reloader reads the configuration again on SIGHUP.
type reloader struct {
	app    *app.App
	log    *slog.Logger
	level  *slog.LevelVar
	load   func() (*config.Loaded, error)
	loaded *config.Loaded
	files  map[string][sha256.Size]byte
}

// reloads lets SIGHUP read all files again until stop is called.
func (p *program) reloads(cmd *cobra.Command, a *app.App, loaded *config.Loaded, log *slog.Logger, level *slog.LevelVar) (stop func()) {
	r := &reloader{
		app: a, log: log, level: level, loaded: loaded, files: loaded.Files(),
		load: func() (*config.Loaded, error) { return p.load(cmd, true) },
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
				r.reload()
			}
		}
	}()
	return func() {
		signal.Stop(hup)
		cancel()
		<-done
	}
}

// reload reads again and says what changed. What cannot be read changes nothing.
func (r *reloader) reload() {
	newer, err := r.load()
	if err == nil {
		err = r.app.Reconfigure(&newer.Config)
	}
	if err != nil {
		r.log.Error("configuration was not taken over; the process goes on with the one before", "err", err)
		return
	}
	r.level.Set(newer.Log.SlogLevel())
	changes, files := r.loaded.Diff(newer), newer.Files()
	for _, c := range changes {
		if c.Live {
			r.log.Info("setting changed", "setting", c.Key, "old", c.Old, "new", c.New)
		} else {
			r.log.Warn("setting changed; it takes effect at the next start", "setting", c.Key, "old", c.Old, "new", c.New)
		}
	}
	named := slices.Collect(maps.Keys(files))
	named = append(named, slices.Collect(maps.Keys(r.files))...)
	slices.Sort(named)
	changed := 0
	for _, setting := range slices.Compact(named) {
		if files[setting] != r.files[setting] {
			changed++
			r.log.Info("file changed; it is used from the next time that it is needed", "setting", setting)
		}
	}
	r.log.Info("configuration was read again", "settings", len(changes), "files", changed)
	r.loaded, r.files = newer, files
}
