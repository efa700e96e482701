package config

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Key    string // the name as it was given
	Value  string // masked where it is a secret; empty: none was given
	Source string // flag --x, environment X, file:line, default
	Want   string // what would be right

	unread bool // of a whole file: what it would have given is not known
}

// String is one line, or more where Want has more.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Key)
	if p.Value != "" {
		fmt.Fprintf(&b, " = %q", p.Value)
	}
	if p.Source != "" {
		fmt.Fprintf(&b, " (%s)", p.Source)
	}
	b.WriteString(": ")
	b.WriteString(p.Want)
	return b.String()
}

// Error is every problem of a configuration. The process ends with exit code 2.
type Error struct{ Problems []Problem }

func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return "configuration: " + e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "configuration: %d problems", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  ")
		b.WriteString(strings.ReplaceAll(p.String(), "\n", "\n  "))
	}
	return b.String()
}
