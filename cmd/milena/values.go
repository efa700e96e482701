package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/milena-project/milena/internal/config"
)

// emptyMeans is the annotation of a flag whose empty value means something: what.
const emptyMeans = "milena-empty"

// mayBeEmpty lets flags have an empty value; means says what it stands for.
func mayBeEmpty(fs *pflag.FlagSet, means string, names ...string) {
	for _, name := range names {
		flag := fs.Lookup(name)
		if flag.Annotations == nil {
			flag.Annotations = map[string][]string{}
		}
		flag.Annotations[emptyMeans] = []string{means}
	}
}

// misvalued is the error for a value that would be taken for something that nobody means,
// whatever the flag: an empty one, which a script has from a variable that is not set and
// which a list would take for no value at all, and so for everything; the further lines of
// a list, which would be lost; and a negative duration. Settings are judged with all other
// layers of the configuration.
func misvalued(root *cobra.Command, args []string) error {
	cmd, rest, err := root.Find(args)
	if err != nil || cmd.DisableFlagParsing {
		return nil //nolint:nilerr // cobra meets it again
	}
	cmd.InitDefaultHelpFlag()
	var wrong error
	help := false
	_ = cmd.Flags().ParseAll(rest, func(flag *pflag.Flag, value string) error { // what it refuses, cobra refuses again
		help = help || flag.Name == "help"
		if want := wantedOf(flag, value); want != "" && wrong == nil {
			wrong = usage("--%s %q: want %s (see %s --help)", flag.Name, safe(value), want, cmd.CommandPath())
		}
		return nil
	})
	if help {
		return nil
	}
	return wrong
}

// wantedOf says what a flag wants in place of a value; nothing if that may be right.
func wantedOf(flag *pflag.Flag, value string) string {
	if config.IsSetting(flag) {
		return ""
	}
	switch kind := flag.Value.Type(); {
	case strings.TrimSpace(value) == "" && flag.Annotations[emptyMeans] == nil:
		return "a value, and this is empty; leave --" + flag.Name + " out if that is meant"
	case kind == "stringSlice" && strings.ContainsAny(value, "\r\n"):
		return "one line: several are given with commas, or --" + flag.Name + " again"
	case kind == "duration" && strings.HasPrefix(value, "-"):
		return "a duration that is not negative"
	}
	return ""
}
