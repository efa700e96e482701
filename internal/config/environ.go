package config

import (
	"regexp"
	"sort"
	"strings"
)

// EnvConfig names the YAML file, as the flag --config does.
const EnvConfig = EnvPrefix + "CONFIG"

// notOurs are variables with our prefix that are no settings: those of our tests,
// and those that Kubernetes sets in every pod beside a service called milena or
// milena-something.
var notOurs = regexp.MustCompile(`^MILENA_(CONFIG$|TEST_)|^MILENA(_.*)?_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// fromEnviron is the layer of the environment, with a problem for each variable
// that has our prefix and is no setting. An empty variable counts as not set.
func fromEnviron(environ []string) ([]given, []Problem) {
	known := make(map[string]*Key, len(Keys))
	for i := range Keys {
		known[Keys[i].Env()] = &Keys[i]
	}
	environ = append([]string(nil), environ...)
	sort.Strings(environ)
	var layer []given
	var problems []Problem
	for _, e := range environ {
		name, text, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, EnvPrefix) || text == "" {
			continue
		}
		if key := known[name]; key != nil {
			layer = append(layer, given{key: key, text: text, source: "environment " + name})
			continue
		}
		if notOurs.MatchString(name) {
			continue
		}
		want := "no such setting; see milena config print"
		if near := Suggest(name); near != "" {
			want = "no such setting; did you mean " + asEnv(near) + "?"
		}
		problems = append(problems, Problem{Key: name, Source: "environment", Want: want})
	}
	return layer, problems
}

// asEnv writes a suggestion as a variable where it is a single setting.
func asEnv(suggestion string) string {
	if key := Lookup(suggestion); key != nil {
		return key.Env()
	}
	return suggestion
}
