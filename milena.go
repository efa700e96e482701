// Package milena embeds Milena, an event-streaming webhook dispatcher on Kafka, in a
// program of yours: what `milena serve` runs, as a value.
//
//	m, err := milena.New(milena.Config{
//		Brokers: []string{"kafka-1:9092"},
//		KeyRing: os.Getenv("MILENA_KEYRING"),
//	})
//	…
//	err = m.Run(ctx) // until ctx ends; then everything in flight is finished first
//
// Topics are made by `milena topics apply`, endpoints by `milena endpoint create`.
// Producers write to the deliveries topic; package schemas has the record format,
// package signer/verify the receiver's side.
package milena

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/config"
)

// Config is what an embedding program says. Brokers and KeyRing are required.
type Config struct {
	// Brokers to ask first, host:port.
	Brokers []string
	// KeyRing are the keys that encrypt endpoint secrets at rest, as `id:base64`
	// entries; the first encrypts, all decrypt.
	KeyRing string
	// Settings are any others by their names in docs/configuration.md, such as
	// "prefix": "orders." or "dispatcher.max_in_flight": "1024". Neither files nor the
	// environment are read.
	Settings map[string]string
	// Logger takes what the process has to say. Default: slog.Default().
	Logger *slog.Logger
}

// ErrRefused is in the chain of an error of Run that trying again does not mend:
// topics, rights or keys are not as they must be. Its text says what to do.
var ErrRefused = app.ErrRefused

// Milena is one process of an installation. Several with the same settings share
// the work.
type Milena struct{ app *app.App }

// New checks the configuration; nothing is dialled before Run. The error lists
// every wrong setting with what would be right.
//
// Its HTTP listeners are off unless Settings name http.addr; mount Handler instead.
func New(cfg Config) (*Milena, error) {
	settings := map[string]string{"http.addr": ""}
	maps.Copy(settings, cfg.Settings)
	settings["kafka.brokers"] = strings.Join(cfg.Brokers, ",")
	settings["keyring"] = cfg.KeyRing
	loaded, err := config.Load(config.Options{Fixed: settings, FixedBy: "milena.Config", FixedOnly: true})
	if err != nil {
		return nil, err
	}
	if len(loaded.Kafka.Brokers) == 0 {
		return nil, errors.New("milena.Config.Brokers: it is empty; give the brokers to ask first (kafka.brokers), host:port each")
	}
	if cfg.KeyRing == "" {
		return nil, errors.New("milena.Config.KeyRing: it is empty; give the one that endpoints were registered with, or make one: k1:$(openssl rand -base64 32)")
	}
	a, err := app.New(loaded.Config, app.Options{Logger: cfg.Logger, Version: version()})
	if err != nil {
		return nil, err
	}
	return &Milena{app: a}, nil
}

// Run delivers until ctx ends, then finishes what is in flight within the drain
// budget, leaves its consumer groups and returns nil. It may be called once.
func (m *Milena) Run(ctx context.Context) error { return m.app.Run(ctx) }

// Handler serves /metrics, /healthz and /readyz.
func (m *Milena) Handler() http.Handler { return m.app.Handler() }

// Ready says why the process is not ready; nil when it is.
func (m *Milena) Ready() error { return m.app.Ready() }

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	for _, dep := range info.Deps {
		if dep.Path == "github.com/milena-project/milena" {
			return strings.TrimPrefix(dep.Version, "v")
		}
	}
	return "devel"
}
