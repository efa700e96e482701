package config

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/milena-project/milena/internal/egress"
)

// Value is one setting as it is printed: masked, with its source.
type Value struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"` // default, file:line, environment X, flag --x, file of a secret
}

// Values is every setting in the order of Keys, secrets masked.
func (l *Loaded) Values() []Value {
	values := make([]Value, len(Keys))
	for i := range Keys {
		key := &Keys[i]
		values[i] = Value{Key: key.Path, Value: key.mask(l.textOf(key)), Source: l.sources[key.Path]}
	}
	return values
}

// Source says where a setting came from, by YAML path.
func (l *Loaded) Source(yamlPath string) string { return l.sources[yamlPath] }

// textOf writes the parsed value of a setting.
func (l *Loaded) textOf(key *Key) string {
	switch f := key.field(&l.Config).(type) {
	case *string:
		return *f
	case *path:
		return string(*f)
	case *upper:
		return string(*f)
	case *address:
		return string(*f)
	case *bool:
		return strconv.FormatBool(*f)
	case *Share:
		return f.String()
	case *int:
		return strconv.Itoa(*f)
	case *time.Duration:
		return shortDuration(*f)
	case *Size:
		return f.String()
	case *[]string:
		return strings.Join(*f, ",")
	case *addresses:
		return strings.Join(*f, ",")
	case *pairs:
		return join(slices.Sorted(maps.Keys(*f)), func(name string) string { return name + "=" + (*f)[name] })
	case *[]time.Duration:
		return join(*f, shortDuration)
	case *[]netip.Prefix:
		return join(*f, netip.Prefix.String)
	case *[]egress.PortRange:
		return join(*f, egress.PortRange.String)
	}
	return ""
}

func join[T any](list []T, text func(T) string) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = text(v)
	}
	return strings.Join(texts, ",")
}

// shortDuration writes 2h where Go writes 2h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// WriteMarkdown writes docs/configuration.md.
func WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(docHead)
	group := "-"
	for i := range Keys {
		key := &Keys[i]
		if key.Group() != group {
			group = key.Group()
			title := "`" + group + "`"
			if group == "" {
				title = "At the top"
			}
			fmt.Fprintf(&b, "\n## %s\n\n| setting | default | what it is |\n| --- | --- | --- |\n", title)
		}
		doc := key.Doc
		if len(key.Choices) > 0 {
			doc += " One of " + strings.Join(key.choices(), ", ") + "."
		}
		def := "`" + key.Default + "`"
		if key.Default == "" {
			def = ""
		}
		names := "`" + key.Path + "`<br>`" + key.Env() + "`"
		switch {
		case key.Secret:
			doc += " Secret: no flag."
		case key.Alias != "":
			names += "<br>`--" + key.Flag() + "`, `--" + key.Alias + "`"
		default:
			names += "<br>`--" + key.Flag() + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", names, def, strings.ReplaceAll(doc, "|", "\\|"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const docHead = `# Configuration

Written by ` + "`go test ./internal/config -update`" + ` from the table of settings; change it there.

A setting has one name everywhere: the YAML path ` + "`kafka.brokers`" + ` is the environment variable
` + "`MILENA_KAFKA_BROKERS`" + ` and the flag ` + "`--kafka-brokers`" + `. What is given in several places counts from the first of
these: flags, environment, the YAML file that ` + "`--config`" + ` (or ` + "`MILENA_CONFIG`" + `) names, ` + "`.milena/milena.yaml`" + ` in the
working directory (written by ` + "`milena dev`" + `; not read when another file is named), the default.

Durations are written ` + "`250ms`, `10s`, `2h`" + `, sizes ` + "`64KiB`, `512MiB`" + `, lists with commas (in YAML also as a sequence). Paths
in a YAML file start at the directory of that file. Secrets come by file or environment and never by flag.
An unknown name or a wrong value ends every command with exit code 2 and one message that lists all of them.
` + "`milena config print`" + ` shows the effective value of every setting and where it came from, ` + "`milena config check`" + ` only
looks for errors.
`
