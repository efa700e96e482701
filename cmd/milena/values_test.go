package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/milena-project/milena/internal/config"
)

// argsOf are the arguments that a command wants, so that only its flags are judged.
func argsOf(cmd *cobra.Command) []string {
	args := strings.Fields(cmd.CommandPath())[1:]
	if use := strings.Fields(cmd.Use); len(use) == 2 && use[1] == strings.ToUpper(use[1]) {
		return append(args, "x")
	}
	return args
}

// eachFlag visits the flags of all commands, but for those of settings and for booleans.
func eachFlag(visit func(args []string, f *pflag.Flag)) {
	each((&program{}).root(), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !config.IsSetting(f) {
				visit(argsOf(cmd), f)
			}
		})
	})
}

// A variable of a script that is not set must not make a filter one of everything. What
// an empty value may stand for is agreed here.
func TestAnEmptyValueIsRefusedUnlessItMeansSomething(t *testing.T) {
	inDir(t)
	fields := []string{"description", "owner", "signature-prefix", "signature-header", "timestamp-header", "id-header",
		"final-statuses", "forward-header", "client-cert", "client-key"}
	means := map[string][]string{"endpoint create": fields, "endpoint update": fields, "send": {"data"},
		"signature sign": {"data", "signature-prefix"}, "signature verify": {"data", "signature-prefix"}, "signature curl": {"data", "signature-prefix"}}
	flags := 0
	eachFlag(func(args []string, f *pflag.Flag) {
		flags++
		command := strings.TrimSuffix(strings.Join(args, " "), " x")
		if slices.Contains(means[command], f.Name) {
			if wantedOf(f, "") != "" {
				t.Errorf("milena %s --%s '' is refused", command, f.Name)
			}
			return
		}
		for _, empty := range []string{"", " "} {
			res := run(t, "", []string{"MILENA_KAFKA_BROKERS=127.0.0.1:1"}, append(slices.Clone(args), "--"+f.Name+"="+empty)...)
			if res.code != exitUsage || !strings.Contains(res.err, "--"+f.Name+` "`+empty+`": want a value, and this is empty; leave --`+f.Name+" out") {
				t.Errorf("milena %s --%s=%q: %+v", command, f.Name, empty, res)
			}
		}
	})
	if flags < 200 {
		t.Errorf("only %d flags were tried", flags)
	}
}

func TestOneEmptyValueAmongOthersIsRefused(t *testing.T) {
	inDir(t)
	for _, args := range [][]string{
		{"dlq", "discard", "--endpoint", "", "--reason", "endpoint_disabled", "--no-export", "--because", "x", "--yes"},
		{"dlq", "list", "--endpoint", "a", "--endpoint", ""},
		{"dlq", "list", "--tenant", "a,,b"},
		{"dlq", "replay", "--type", ","},
		{"dlq", "count", "--endpoint", "a\nb"}, // of a list of CSV only the first line is read
		{"dlq", "show", ""},
		{"resend", "--event", "", "--endpoint", "a", "--all", "--since", "1h", "--yes"},
		{"endpoint", "disable", ""},
	} {
		if res := run(t, "", []string{"MILENA_KAFKA_BROKERS=127.0.0.1:1"}, args...); res.code != exitUsage {
			t.Errorf("milena %q: %+v", args, res)
		}
	}
	if res := run(t, "", nil, "dlq", "list", "--endpoint", "", "--help"); res.code != exitDone {
		t.Errorf("the help is not shown: %+v", res)
	}
}

func TestANegativeDurationIsRefused(t *testing.T) {
	inDir(t)
	eachFlag(func(args []string, f *pflag.Flag) {
		if f.Value.Type() != "duration" {
			return
		}
		res := run(t, "", []string{"MILENA_KAFKA_BROKERS=127.0.0.1:1"}, append(slices.Clone(args), "--"+f.Name, "-10s")...)
		if res.code != exitUsage || !strings.Contains(res.err, "--"+f.Name+` "-10s": want a duration that is not negative`) {
			t.Errorf("milena %q --%s -10s: %+v", args, f.Name, res)
		}
	})
}
