package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/milena-project/milena/internal/config"
)

// flagError says what is wrong with a flag and what would be right, in the words of
// the configuration and not in those of Go's parsers.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		text = "--" + f.Name + " \"" + safe(invalid.GetValue()) + "\": want " + wanted(f.Value.Type(), invalid)
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		if near := nearestFlag(cmd, unknown.GetSpecifiedName()); near != "" {
			text += "; did you mean --" + near + "?"
		}
	}
	return usage("%s (see %s --help)", text, cmd.CommandPath())
}

// wanted describes the values of a type of flag.
func wanted(kind string, invalid *pflag.InvalidValueError) string {
	switch kind {
	case "duration":
		return "a duration such as 250ms, 10s or 2h" + config.DurationHint(invalid.GetValue())
	case "durationSlice":
		return "durations such as 2s,5s,1h"
	case "int", "int32", "int64":
		return "a whole number"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	}
	return invalid.Unwrap().Error()
}

// nearestFlag is the flag that was meant by a name that is none: that of the setting
// which Kafka's own tools call so, or one that is spelt nearly so.
func nearestFlag(cmd *cobra.Command, name string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := config.Nearest(name, names); near != "" {
		return near
	}
	if key := config.Lookup(config.Suggest(name)); key != nil && key.Flag() != "" && cmd.Flags().Lookup(key.Flag()) != nil {
		return key.Flag()
	}
	return ""
}

// unknownCommand is for a word that is no subcommand of cmd.
func unknownCommand(cmd *cobra.Command, word string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	hint := ""
	if near := meant(cmd, word); near != nil {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	} else if near := config.Nearest(word, names); near != "" {
		hint = "; did you mean " + cmd.CommandPath() + " " + near + "?"
	}
	return usage("unknown command %q for %q%s (%s --help lists them)", word, cmd.CommandPath(), hint, cmd.CommandPath())
}

// meant are the commands that are called by a word in another place, or that a word stands
// for which people bring along from other tools; nil if they are none or too many.
func meant(cmd *cobra.Command, word string) (paths []string) {
	var visit func(*cobra.Command)
	visit = func(at *cobra.Command) {
		if at.Name() == word || slices.Contains(at.SuggestFor, word) {
			paths = append(paths, at.CommandPath())
		}
		for _, sub := range at.Commands() {
			if sub.IsAvailableCommand() {
				visit(sub)
			}
		}
	}
	for _, from := range []*cobra.Command{cmd, cmd.Root()} { // what is near first
		if visit(from); paths != nil {
			break
		}
	}
	if len(paths) > 2 {
		return nil
	}
	return paths
}

// misplaced is the error for a command line that asks for the help of a command that is
// none; cobra shows that of the command before it, as if that had been asked for.
func misplaced(root *cobra.Command, args []string) error {
	if !slices.Contains(args, "--help") && !slices.Contains(args, "-h") {
		return nil
	}
	cmd, rest, err := root.Find(args)
	if err != nil || !cmd.HasAvailableSubCommands() {
		return nil //nolint:nilerr // cobra meets it again
	}
	for _, word := range rest {
		if !strings.HasPrefix(word, "-") {
			return unknownCommand(cmd, word)
		}
	}
	return nil
}

// noArgs is for a command that takes flags only.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasAvailableSubCommands() {
		return unknownCommand(cmd, args[0])
	}
	return usage("%q is one word too many: %s (see %s --help)", strings.Join(args, " "), cmd.UseLine(), cmd.CommandPath())
}

// refuseUnknownTopics makes milena help WORD say that there is no such command; cobra
// shows the help of everything then, as if that had been asked for.
func refuseUnknownTopics(help *cobra.Command) {
	show := help.Run
	help.Run = nil
	help.RunE = func(cmd *cobra.Command, args []string) error {
		about, rest, err := cmd.Root().Find(args)
		if err == nil && len(rest) > 0 {
			return unknownCommand(about, rest[0])
		}
		show(cmd, args)
		return err
	}
}
