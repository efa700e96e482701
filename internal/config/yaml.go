package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fromFile is the layer of a YAML file. Lines are kept, so that a problem says
// where it is. Nested and dotted keys are the same.
func fromFile(name string) ([]given, []Problem) {
	data, err := os.ReadFile(name)
	if err != nil {
		reason := err.Error()
		if errors.Is(err, os.ErrNotExist) {
			reason = "no such file"
		}
		return nil, []Problem{{Key: name, Want: "a YAML file that can be read; " + reason, unread: true}}
	}
	var doc, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	err = dec.Decode(&doc)
	if err == nil {
		err = dec.Decode(&more)
	}
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, []Problem{{Key: name, Want: "YAML; " + strings.TrimPrefix(err.Error(), "yaml: "), unread: true}}
	case err == nil: // what stands behind --- would count for nothing
		return nil, []Problem{{Key: name, Source: fmt.Sprintf("%s:%d", name, more.Line), Want: "one YAML document; a second one begins there", unread: true}}
	}
	if len(doc.Content) == 0 { // empty, or only comments
		return nil, nil
	}
	f := yamlFile{name: name, dir: filepath.Dir(name), lines: map[string]int{}}
	f.mapping("", doc.Content[0])
	return f.layer, f.problems
}

type yamlFile struct {
	name, dir string
	lines     map[string]int // of each setting seen
	layer     []given
	problems  []Problem
}

func (f *yamlFile) at(line int) string { return fmt.Sprintf("%s:%d", f.name, line) }

func (f *yamlFile) problem(name, value string, line int, want string) {
	f.problems = append(f.problems, Problem{Key: name, Value: value, Source: f.at(line), Want: want})
}

func (f *yamlFile) mapping(prefix string, n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		f.problem(strings.TrimSuffix(prefix, "."), n.Value, n.Line, "a group of settings, not a value")
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		f.entry(prefix+n.Content[i].Value, n.Content[i], n.Content[i+1])
	}
}

func (f *yamlFile) entry(name string, nameNode, value *yaml.Node) {
	key := Lookup(name)
	switch {
	case key == nil && isGroup(name):
		if value.Tag != "!!null" { // a group whose settings are all commented out
			f.mapping(name+".", value)
		}
		return
	case key == nil:
		want := "no such setting"
		if near := Suggest(name); near != "" {
			want += "; did you mean " + near + "?"
		}
		f.problem(name, "", nameNode.Line, want)
		return
	}
	if line, twice := f.lines[name]; twice {
		f.problem(name, "", nameNode.Line, fmt.Sprintf("once; it stands in line %d too", line))
		return
	}
	f.lines[name] = nameNode.Line
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	g := given{key: key, source: f.at(nameNode.Line), dir: f.dir}
	switch {
	case value.Kind == yaml.ScalarNode && value.Tag == "!!null":
		return // as if it were not there
	case value.Kind == yaml.ScalarNode:
		g.text = value.Value
	case value.Kind == yaml.SequenceNode && isList(key.field(new(Config))):
		items := make([]string, len(value.Content))
		for i, item := range value.Content {
			if item.Kind != yaml.ScalarNode {
				f.problem(name, "", item.Line, "a list of plain values")
				return
			}
			items[i] = item.Value
		}
		g.text = strings.Join(items, ",")
	default:
		f.problem(name, "", value.Line, "a value of kind "+kindName(key.field(new(Config))))
		return
	}
	f.layer = append(f.layer, g)
}

// isGroup reports whether settings stand below this path.
func isGroup(name string) bool {
	for i := range Keys {
		if strings.HasPrefix(Keys[i].Path, name+".") {
			return true
		}
	}
	return false
}
