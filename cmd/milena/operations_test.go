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
				if words := strings.Fields(line); words[0] == "milena" {
					accepts(t, words[1:])
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
	for _, name := range regexp.MustCompile("`milena ([a-z ]+?)(?: --?[^`]*| URL)?`").FindAllStringSubmatch(document, -1) {
		accepts(t, strings.Fields(name[1]))
	}
}

// accepts fails the test where the command line knows no such command or flag.
func accepts(t *testing.T, words []string) {
	t.Helper()
	cmd, rest, err := (&program{}).root().Find(words)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil || cmd.HasSubCommands() {
		t.Errorf("milena %s: %v", strings.Join(words, " "), err)
	}
}
