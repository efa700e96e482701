package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/kafka/mskiam"
	"github.com/milena-project/milena/internal/logging"
	"github.com/milena-project/milena/internal/tracing"
)

func (p *program) serveCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "serve", Args: noArgs,
		Short: "Run the production process: dispatcher, releaser and router (--roles picks some)",
		Long: `Run the production process until SIGTERM or Ctrl-C: dispatcher, releaser and router.
Several processes with the same settings share the work. What is in flight at the end is finished
within dispatcher.drain_budget; everything else stays in Kafka.
SIGHUP reads all files again and says what changed: log.level, log.successes and the key ring count at once,
other settings at the next start, certificates and passwords at the next connection.
Traces go to an OpenTelemetry collector where the standard OTEL_* variables name one.
Exit code 0: asked to stop; 1: failed; 2: refused to run: before anything was touched, or because the topics have changed.`,
		Example: `  milena serve --brokers kafka-1:9092,kafka-2:9092 --keyring-file /etc/milena/keyring
  milena serve --config /etc/milena/milena.yaml --roles dispatcher`}
	config.AddFlags(cmd.Flags(), func(*config.Key) bool { return true })
	cmd.Flags().SortFlags = false
	return p.verb(cmd, func(cmd *cobra.Command, _ []string) error {
		loaded, err := p.load(cmd, true)
		if err != nil {
			return err
		}
		if _, err := needRing(loaded); err != nil {
			return err
		}
		level, version := new(slog.LevelVar), readVersion().Version
		log := loaded.Log.NewLogger(p.err, level)
		logging.Standard(log)
		traces, err := tracing.FromEnvironment(cmd.Context(), version, app.ProcessName(), log)
		if err != nil {
			return usage("%w", err)
		}
		a, err := app.New(loaded.Config, app.Options{Logger: log, Version: version, Connect: connectIAM, Traces: traces})
		if err != nil {
			return usage("%w", err)
		}
		defer p.reloads(cmd, a, loaded, log, level)()
		err = a.Run(cmd.Context())
		closeTraces(cmd.Context(), traces, log)
		if errors.Is(err, app.ErrRefused) {
			return usage("%w", err)
		}
		return err
	})
}

// closeTraces exports what is left. The grace time has room for it: a drain that takes
// its whole budget is over long before the longest timeout is.
func closeTraces(ctx context.Context, traces *tracing.Tracer, log *slog.Logger) {
	if traces == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := traces.Close(ctx); err != nil {
		log.Warn("the last traces are not exported", "err", err)
	}
}

// connectIAM lets this binary log in to Amazon MSK.
func connectIAM(c *kafka.Config) { c.SASL.IAM = mskiam.Mechanism }
