package main

import (
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/kafka/mskiam"
	"github.com/milena-project/milena/internal/logging"
)

func (p *program) serveCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "serve", Args: cobra.NoArgs,
		Short: "Run the production process: dispatcher, releaser and router (--roles picks some)",
		Long: `Run the production process until SIGTERM or Ctrl-C: dispatcher, releaser and router.
Several processes with the same settings share the work. What is in flight at the end is finished
within dispatcher.drain_budget; everything else stays in Kafka.
SIGHUP reads all files again and says what changed: log.level, log.successes and the key ring count at once,
other settings at the next start, certificates and passwords at the next connection.
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
		level := new(slog.LevelVar)
		log := loaded.Log.NewLogger(p.err, level)
		logging.Standard(log)
		a, err := app.New(loaded.Config, app.Options{Logger: log, Version: readVersion().Version, Connect: connectIAM})
		if err != nil {
			return usage("%w", err)
		}
		defer p.reloads(cmd, a, loaded, log, level)()
		err = a.Run(cmd.Context())
		if errors.Is(err, app.ErrRefused) {
			return usage("%w", err)
		}
		return err
	})
}

// connectIAM lets this binary log in to Amazon MSK.
func connectIAM(c *kafka.Config) { c.SASL.IAM = mskiam.Mechanism }
