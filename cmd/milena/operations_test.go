package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/milena-project/milena/internal/config"
)

var fenced = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

func TestWhatTheOperationsGuideShowsIsAccepted(t *testing.T) {
	document := string(readRoot(t, "docs/operations.md"))
	dir := inDir(t)
	for _, file := range []string{"ca.pem", "client.pem", "client.key", "password", "oauth-secret"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	for _, block := range fenced.FindAllStringSubmatch(document, -1) {
		seen[block[1]]++
		switch block[1] {
		case "yaml":
			text := strings.ReplaceAll(block[2], "/etc/milena/", dir+"/")
			if err := os.WriteFile("example.yaml", []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if res := run(t, "", nil, "config", "check", "--config", "example.yaml"); res.code != exitDone {
				t.Errorf("%s%+v", block[2], res)
			}
		case "sh":
			for line := range strings.Lines(block[2]) {
				if found := words(line); len(found) > 0 && found[0] == "milena" {
					accepts(t, found[1:])
				}
			}
		}
	}
	if seen["yaml"] < 4 || seen["sh"] < 6 {
		t.Errorf("blocks of the guide: %v", seen)
	}
	for _, name := range regexp.MustCompile("`((?:kafka|topics|dispatcher|retry|egress|http|sources)\\.[a-z_.]+)`").FindAllStringSubmatch(document, -1) {
		if config.Lookup(name[1]) == nil && !strings.HasPrefix(name[1], "retry.*") {
			t.Errorf("there is no setting %s", name[1])
		}
	}
}

// accepts fails the test where the command line knows no such command or flag.
func accepts(t *testing.T, words []string) {
	t.Helper()
	cmd, rest, err := (&program{}).root().Find(words)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil || cmd.HasSubCommands() && len(words) > 1 {
		t.Errorf("milena %s: %v", strings.Join(words, " "), err)
	}
}

// words splits a command line as a shell does, up to a comment or another command.
func words(line string) (all []string) {
	for _, m := range regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`).FindAllString(line, -1) {
		if strings.HasPrefix(m, "#") || m == "|" || m == "&&" || m == ";" || m == "…" {
			break
		}
		all = append(all, strings.NewReplacer("'", "", `"`, "", ";", "").Replace(m))
	}
	return all
}

func TestEveryCommandLineThatADocumentNamesIsAccepted(t *testing.T) {
	shown := regexp.MustCompile("(?m)(?:^\\s*(?:- )?|`|\\./cmd/|\\bmilena )milena ([a-z][^`\n]*)")
	found := map[string]int{}
	documents := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "docker-compose.yml"}
	for _, dir := range []string{"docs", "deploy", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ os.DirEntry, err error) error {
			if ext := filepath.Ext(path); ext == ".md" || ext == ".yml" || ext == ".yaml" {
				name, _ := filepath.Rel(root, path)
				documents = append(documents, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range documents {
		for _, m := range shown.FindAllStringSubmatch(string(readRoot(t, name)), -1) {
			found[name]++
			t.Run(name, func(t *testing.T) { accepts(t, words(m[1])) })
		}
	}
	if found["README.md"] < 20 || found["CONTRIBUTING.md"] < 1 || found["docs/operations.md"] < 40 {
		t.Errorf("command lines: %v", found)
	}
}
