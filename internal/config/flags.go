package config

import (
	"strings"

	"github.com/spf13/pflag"
)

// FlagConfig is the flag that names the YAML file; MILENA_CONFIG does the same.
const FlagConfig = "config"

// AddFlags gives a command the flag of every setting that is no secret. The help
// shows those that shown says; the others work as well.
func AddFlags(fs *pflag.FlagSet, shown func(*Key) bool) {
	fs.String(FlagConfig, "", "YAML `file` with the configuration (default .milena/milena.yaml where it exists)")
	for i := range Keys {
		key := &Keys[i]
		if key.Secret {
			continue
		}
		value := &flagValue{key: key}
		names := []string{key.Flag()}
		if key.Alias != "" {
			names = []string{key.Alias, key.Flag()}
		}
		for n, name := range names {
			flag := fs.VarPF(value, name, "", key.usage())
			flag.Hidden = n > 0 || !shown(key)
			switch key.field(new(Config)).(type) {
			case *bool, *Share:
				flag.NoOptDefVal = "true"
			}
		}
	}
}

// usage is the first sentence of the doc, without its full stop.
func (k *Key) usage() string {
	text, _, _ := strings.Cut(k.Doc, ". ")
	text = strings.TrimSuffix(text, ".")
	if len(k.Choices) > 0 {
		text += " (" + strings.Join(k.choices(), ", ") + ")"
	}
	return text
}

func (k *Key) choices() []string {
	if len(k.Choices) > 0 && k.Choices[0] == "" {
		return k.Choices[1:]
	}
	return k.Choices
}

// flagValue keeps the text of a flag; it is parsed with all other layers, so that
// a wrong flag is reported like a wrong line in the YAML.
type flagValue struct {
	key   *Key
	texts []string
}

func (f *flagValue) String() string {
	if f.key == nil {
		return ""
	}
	return f.key.Default
}

func (f *flagValue) Type() string { return kindName(f.key.field(new(Config))) }

func (f *flagValue) Set(text string) error {
	if !isList(f.key.field(new(Config))) {
		f.texts = f.texts[:0]
	}
	f.texts = append(f.texts, text)
	return nil
}

// fromFlags is the layer of the flags that were given.
func fromFlags(fs *pflag.FlagSet) []given {
	var layer []given
	if fs == nil {
		return nil
	}
	seen := map[*flagValue]bool{}
	fs.Visit(func(f *pflag.Flag) {
		if v, ok := f.Value.(*flagValue); ok && !seen[v] {
			seen[v] = true
			text := strings.Join(v.texts, ",")
			layer = append(layer, given{key: v.key, text: text, source: "flag --" + f.Name})
		}
	})
	return layer
}

// IsSetting reports whether a flag is that of a setting.
func IsSetting(f *pflag.Flag) bool {
	_, ok := f.Value.(*flagValue)
	return ok
}
