package config

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// DevFile is the file that `milena dev` writes and that every command reads when
// no other is named, below the working directory.
const DevFile = ".milena/milena.yaml"

// Options says where a configuration comes from.
type Options struct {
	Flags   *pflag.FlagSet // made by AddFlags, parsed; nil: none
	Environ []string       // as of os.Environ
	Dir     string         // where DevFile is looked for; empty: the working directory
	Notice  io.Writer      // hears that DevFile was read; nil: nobody
	File    string         // the YAML file to read whatever flags and environment name; empty: theirs

	// Fixed settings win over everything, by YAML path; the value of FixedBy is
	// their source. `milena dev` fixes the brokers to the one it embeds.
	Fixed   map[string]string
	FixedBy string
	// FixedOnly leaves out files and the environment; a name in Fixed that is no
	// setting is then a problem like any other.
	FixedOnly bool

	// NeedBrokers makes it an error that no brokers are given.
	NeedBrokers bool
}

// given is one value of one layer, not yet parsed.
type given struct {
	key    *Key
	text   string
	source string
	dir    string // relative paths start here; empty: the working directory
}

// Loaded is a configuration and where each value came from.
type Loaded struct {
	Config
	sources map[string]string
	texts   map[string]string
}

// Load reads all layers. Its error is an *Error with every problem, or nil.
func Load(o Options) (*Loaded, error) {
	layers, problems := collect(o)
	merged := koanf.New(".")
	winners := make(map[string]given, len(Keys))
	rank := make(map[string]int, len(Keys))
	for n, layer := range layers {
		values := make(map[string]any, len(layer))
		for _, g := range layer {
			values[g.key.Path] = g.text
			winners[g.key.Path], rank[g.key.Path] = g, n
		}
		if err := merged.Load(confmap.Provider(values, "."), nil); err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
	}
	l := &Loaded{sources: map[string]string{}, texts: map[string]string{}}
	for i := range Keys {
		key := &Keys[i]
		g := winners[key.Path]
		g.key, g.text = key, merged.String(key.Path)
		l.sources[key.Path], l.texts[key.Path] = g.source, g.text
		if p := l.set(g); p != nil {
			problems = append(problems, *p)
		}
	}
	problems = append(problems, l.readSecrets(rank)...)
	if len(problems) == 0 {
		problems = l.check(o.NeedBrokers)
	} else if o.NeedBrokers && len(l.Kafka.Brokers) == 0 && l.texts["kafka.brokers"] == "" && !slices.ContainsFunc(problems, func(p Problem) bool { return p.unread }) {
		problems = append(problems, noBrokers)
	}
	if len(problems) > 0 {
		return nil, &Error{Problems: problems}
	}
	return l, nil
}

// collect is every layer, the weakest first.
func collect(o Options) (layers [][]given, problems []Problem) {
	var defaults, fixed []given
	for i := range Keys {
		defaults = append(defaults, given{key: &Keys[i], text: Keys[i].Default, source: "default"})
		if text, ok := o.Fixed[Keys[i].Path]; ok {
			fixed = append(fixed, given{key: &Keys[i], text: text, source: o.FixedBy})
		}
	}
	if o.FixedOnly {
		return [][]given{defaults, fixed}, unknownFixed(o)
	}
	var file []given
	if name := fileName(o); name != "" {
		file, problems = fromFile(name)
	}
	env, more := fromEnviron(o.Environ)
	return [][]given{defaults, file, env, fromFlags(o.Flags), fixed}, append(problems, more...)
}

// unknownFixed finds names in Fixed that are no settings.
func unknownFixed(o Options) (problems []Problem) {
	for _, name := range slices.Sorted(maps.Keys(o.Fixed)) {
		if Lookup(name) == nil {
			want := "no such setting; docs/configuration.md lists them"
			if near := Suggest(name); near != "" {
				want = "no such setting; did you mean " + near + "?"
			}
			problems = append(problems, Problem{Key: name, Source: o.FixedBy, Want: want})
		}
	}
	return problems
}

// fileName is the YAML file to read; empty: none.
func fileName(o Options) string {
	if o.File != "" {
		return o.File
	}
	if o.Flags != nil {
		if f := o.Flags.Lookup(FlagConfig); f != nil && f.Changed {
			return f.Value.String()
		}
	}
	for _, e := range o.Environ {
		if name, ok := strings.CutPrefix(e, EnvConfig+"="); ok && name != "" {
			return name
		}
	}
	name := filepath.Join(o.Dir, DevFile)
	if _, err := os.Stat(name); err != nil {
		return ""
	}
	if o.Notice != nil {
		fmt.Fprintf(o.Notice, "using %s, as milena dev wrote it (--config names another)\n", name)
	}
	return name
}

// set parses one value into its field.
func (l *Loaded) set(g given) *Problem {
	field := g.key.field(&l.Config)
	if g.source == "default" && g.text == "" {
		return nil
	}
	list := words(field, g.text)
	problem := func(want string) *Problem {
		return &Problem{Key: g.key.Path, Value: g.key.mask(g.text), Source: g.source, Want: "want " + want}
	}
	if len(g.key.Choices) > 0 {
		for _, w := range list {
			if !allowed(g.key.Choices, w) {
				return problem(oneOf(g.key, field))
			}
		}
	}
	if p, ok := field.(*path); ok && g.dir != "" && !filepath.IsAbs(g.text) && g.text != "" {
		*p = path(filepath.Join(g.dir, g.text))
		return nil
	}
	if want := parse(field, list); want != "" {
		return problem(want + hint(field, g.text))
	}
	return nil
}

func allowed(choices []string, word string) bool {
	for _, c := range choices {
		if strings.EqualFold(c, word) {
			return true
		}
	}
	return false
}

func oneOf(key *Key, field any) string {
	if isList(field) {
		return "some of " + strings.Join(key.choices(), ", ")
	}
	return "one of " + strings.Join(key.choices(), ", ")
}

var bareNumber = regexp.MustCompile(`^([0-9]{1,9})(d?)$`)

// hint adds how a duration without a unit, or in days, would be written.
func hint(field any, text string) string {
	if _, ok := field.(*time.Duration); !ok {
		return ""
	}
	return DurationHint(text)
}

// DurationHint says how a number without a unit, or of days, is written as a duration;
// it begins with "; ", and is empty where there is nothing to say.
func DurationHint(text string) string {
	found := bareNumber.FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	n, err := strconv.Atoi(found[1])
	switch {
	case err != nil:
		return ""
	case found[2] == "d":
		return fmt.Sprintf("; %d days are %dh", n, n*24)
	default:
		return fmt.Sprintf("; %d needs a unit: %dms or %ds", n, n, n)
	}
}
