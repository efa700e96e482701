package main

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/devmode"
	"github.com/milena-project/milena/internal/logging"
)

func (p *program) devCommand() *cobra.Command {
	var c devmode.Config
	cmd := &cobra.Command{Use: "dev", Args: noArgs,
		Short: "Run the whole system in one process on an embedded broker, with sample endpoints and events",
		Long: `Run the whole system in one process on an embedded broker, with sample endpoints and events, until
Ctrl-C. Three endpoints stand on an echo receiver that verifies every signature: good, flaky (30 % of
its answers are 500) and dead (503 for the first minute), tried again after 2s, 5s and 10s. The data
stays in --data-dir with a milena.yaml. Every other command in this directory finds that of the default
--data-dir by itself, and another one by MILENA_CONFIG.`,
		Example: `  milena dev
  milena dev --forward-to http://localhost:3000/hook
  milena dev --events 10000 --exit`}
	fs := cmd.Flags()
	fs.StringVar(&c.DataDir, "data-dir", devmode.DefaultDataDir, "where the data is; continued if it is there")
	fs.StringVar(&c.KafkaAddr, "kafka-addr", devmode.DefaultKafkaAddr, "where the embedded broker speaks the Kafka protocol")
	fs.Float64Var(&c.Rate, "rate", devmode.DefaultRate, "sample events a second; with --events the default is as fast as it goes")
	fs.IntVar(&c.Events, "events", 0, "stop sending after so many events")
	fs.BoolVar(&c.Exit, "exit", false, "with --events: end with 0 when all are delivered and verified, else with 1")
	fs.StringVar(&c.ForwardTo, "forward-to", "", "send the sample events to your own receiver at this `URL`, and say how to verify them")
	config.AddFlags(fs, func(k *config.Key) bool { return k.Path == "http.addr" || k.Path == "log.level" })
	fs.Lookup("http-addr").DefValue, fs.Lookup("log-level").DefValue = devmode.DefaultHTTPAddr, devmode.DefaultLogLevel
	fs.SortFlags = false
	for _, name := range []string{config.FlagConfig, "brokers"} {
		fs.Lookup(name).Hidden = true // dev writes its own file and has its own broker
	}
	return p.verb(cmd, func(cmd *cobra.Command, _ []string) error {
		switch {
		case c.Events < 0:
			return usage("--events %d: want 1 or more", c.Events)
		case c.Exit && c.Events == 0:
			return usage("--exit needs --events N: the end must be known")
		case c.Rate < 0:
			return usage("--rate %g: want 0 (as fast as it goes) or more", c.Rate)
		case fs.Changed(config.FlagConfig):
			return usage("dev has a configuration of its own, which it writes; change single settings by flags or environment")
		case !listenable(c.KafkaAddr):
			return usage("--kafka-addr %q: want an address such as %s", c.KafkaAddr, devmode.DefaultKafkaAddr)
		case c.ForwardTo != "" && !webAddress(c.ForwardTo):
			return usage("--forward-to %q: want a URL such as http://localhost:3000/hook", c.ForwardTo)
		case c.Events > 0 && !fs.Changed("rate"):
			c.Rate = 0
		}
		c.Flags, c.Environ, c.Out, c.Log = fs, p.environ, p.out, p.err
		c.Terminal, c.Color, c.Width = screenOf(p.out)
		c.Start = startSystem
		err := devmode.Run(cmd.Context(), c)
		if errors.Is(err, app.ErrRefused) {
			return usage("%w", err)
		}
		return err
	})
}

// listenable reports whether text is host:port, as a listener wants it.
func listenable(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// webAddress reports whether text is a URL that a request can go to at all.
func webAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// screenOf looks at what stdout is.
func screenOf(w io.Writer) (terminal, color bool, width func() int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return false, false, nil
	}
	return true, os.Getenv("NO_COLOR") == "", func() int {
		w, _, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0
		}
		return w
	}
}

// system is an App as devmode sees it.
type system struct{ *app.App }

func startSystem(loaded *config.Loaded, log *slog.Logger, on devmode.Hooks) (devmode.System, error) {
	logging.Standard(log)
	a, err := app.New(loaded.Config, app.Options{Logger: log, Version: readVersion().Version, OnAttempt: on.Attempt, OnBreaker: on.Breaker})
	if err != nil {
		return nil, err
	}
	return system{a}, nil
}

// Gauges implements devmode.System.
func (s system) Gauges() devmode.Gauges {
	load := s.Load()
	return devmode.Gauges{InFlight: load.InFlight, Held: load.Held}
}
