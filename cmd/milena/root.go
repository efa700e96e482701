package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

// Exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitDifferences = 3
)

// exit is an error with the exit code that it ends the process with. Without a
// cause it is silent: what there was to say stands on stdout already.
type exit struct {
	code  int
	cause error
}

func (e *exit) Error() string {
	if e.cause == nil {
		return ""
	}
	return e.cause.Error()
}

func (e *exit) Unwrap() error { return e.cause }

// usage is a mistake in the command line, found before anything was touched.
func usage(format string, args ...any) error {
	return &exit{code: exitUsage, cause: fmt.Errorf(format, args...)}
}

// program is one run of the command line with everything it gets from outside.
type program struct {
	in      io.Reader
	out     io.Writer
	err     io.Writer
	environ []string

	started bool  // the verb itself runs: errors before are mistakes in usage
	unsaid  error // the first error of writing to stdout
}

// run executes a command line and returns its exit code.
func (p *program) run(ctx context.Context, args []string) int {
	root := p.root()
	root.SetArgs(args)
	err := misplaced(root, args)
	if err == nil {
		err = misvalued(root, args)
	}
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if err == nil && p.unsaid != nil { // a secret is shown once: who saves it in vain must know
		err = fmt.Errorf("what was to be said is not written: %w", p.unsaid)
	}
	if err == nil {
		return exitDone
	}
	text := err.Error()
	if ctx.Err() != nil { // Ctrl-C or SIGTERM, in the words of whoever sent it
		text = strings.ReplaceAll(text, context.Canceled.Error(), "interrupted")
	}
	if text != "" {
		fmt.Fprintln(p.err, "milena: "+text)
	}
	var e *exit
	var wrong *config.Error
	var refused *registry.ValidationError
	var key *registry.MissingKeyError
	switch {
	case errors.As(err, &e):
		return e.code
	case errors.As(err, &wrong), errors.As(err, &refused), errors.As(err, &key), !p.started:
		return exitUsage
	}
	return exitFailed
}

func (p *program) root() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "milena",
		Short: "Delivers Kafka events to webhooks",
		Long: `Milena delivers Kafka events to webhooks: it signs each event, POSTs it to every
subscribed endpoint, retries for three days, and keeps what could not be delivered.`,
		Example:       "  milena dev              # all of it on this machine, no Kafka needed\n  milena serve --brokers kafka-1:9092",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				p.sayVersion()
				return nil
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "say which build this is")
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(p.devCommand(), p.serveCommand(), p.topicsCommand(), p.endpointCommand(), p.sourcesCommand(), p.sendCommand(), p.attemptsCommand(), p.tailCommand(), p.lagCommand(), p.dlqCommand(), p.runsCommand(), p.resendCommand(), p.egressCommand(), p.signatureCommand(), p.configCommand(), p.versionCommand())
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			refuseUnknownTopics(cmd)
		}
	}
	return root
}

// group is a command that only has subcommands.
func group(use, short, example string, sub ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return usage("%s needs a subcommand", cmd.CommandPath())
		}}
	cmd.AddCommand(sub...)
	return cmd
}

// oneArg is for a command that works on one thing, which it names.
func oneArg(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usage("%s is missing: %s", name, cmd.UseLine())
		case len(args) == 1 && args[0] == "":
			return usage("%s is empty: %s", name, cmd.UseLine())
		case len(args) == 1:
			return nil
		}
		return usage("one %s is wanted, not %d: %s", name, len(args), cmd.UseLine())
	}
}

// verb completes a command: run is told apart from the parsing before it.
func (p *program) verb(cmd *cobra.Command, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p.started = true
		return run(cmd, args)
	}
	return cmd
}

// settings gives a command the flags of all settings, and shows the most wanted.
func settings(cmd *cobra.Command) *cobra.Command {
	config.AddFlags(cmd.Flags(), func(k *config.Key) bool { return k.Path == "kafka.brokers" })
	cmd.Flags().SortFlags = false
	return cmd
}

// load reads the configuration of a command that has settings.
func (p *program) load(cmd *cobra.Command, needBrokers bool) (*config.Loaded, error) {
	return config.Load(config.Options{Flags: cmd.Flags(), Environ: p.environ, Notice: p.err, NeedBrokers: needBrokers})
}

// timeoutFlag is for commands that talk to Kafka and must not wait for ever. Brokers take
// 9s to notice that one of them is dead (broker.session.timeout.ms), and then to elect.
func timeoutFlag(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", 15*time.Second, "give up on Kafka after this time")
}

// jsonFlag makes a command write JSON lines.
func jsonFlag(cmd *cobra.Command, on *bool) {
	cmd.Flags().BoolVar(on, "json", false, "write JSON lines")
}

// writeJSON writes one line.
func (p *program) writeJSON(v any) error {
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printf writes to stdout. Text that came from outside must pass safe.
func (p *program) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(p.out, format, args...); err != nil && p.unsaid == nil {
		p.unsaid = err
	}
}

// notef writes to stderr.
func (p *program) notef(format string, args ...any) { fmt.Fprintf(p.err, format+"\n", args...) }

// safe makes text from outside fit for a terminal: no escapes, no control or
// formatting characters, one line.
func safe(s string) string { return schemas.CleanText(s, 4096) }
