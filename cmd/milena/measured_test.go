package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testFile is what a command that runs tests may find in a file.
type testFile struct {
	dir   string // below the root
	kafka bool   // only with -tags kafka
	text  string
	funcs []string
}

// testFiles are those of the whole tree.
func testFiles(t *testing.T) (files []testFile) {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)`)
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		f := testFile{dir: filepath.ToSlash(dir), text: string(text), kafka: strings.Contains(string(text), "//go:build kafka\n")}
		for _, m := range declared.FindAllStringSubmatch(f.text, -1) {
			f.funcs = append(f.funcs, m[1])
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// finds reports whether `go test` with these words would run something.
func finds(files []testFile, words []string) bool {
	value := func(flag string) string {
		if i := slices.Index(words, flag); i >= 0 && i+1 < len(words) {
			return strings.Trim(words[i+1], "'")
		}
		return ""
	}
	pattern, kind := value("-run"), "Test"
	if bench := value("-bench"); bench != "" {
		pattern, kind = bench, "Benchmark"
	}
	pattern, _, _ = strings.Cut(pattern, "/") // what follows is a subtest's
	wanted, err := regexp.Compile(pattern)
	if err != nil || pattern == "" {
		return false
	}
	dir, anywhere := strings.CutPrefix(words[len(words)-1], "./")
	for _, f := range files {
		if anywhere && f.dir != dir || anywhere && f.kafka && value("-tags") != "kafka" {
			continue
		}
		if slices.ContainsFunc(f.funcs, func(name string) bool { return strings.HasPrefix(name, kind) && wanted.MatchString(name) }) {
			return true
		}
	}
	return false
}

func TestEveryCommandThatADocumentMeasuresOrTestsWithRunsSomething(t *testing.T) {
	files := testFiles(t)
	makefile := string(readRoot(t, "Makefile"))
	known := makefile
	for _, f := range files {
		known += f.text
	}
	tests := regexp.MustCompile("go test ((?:[^`\n;|']|'[^'\n]*')+)|`(?:[^`\n]*… )?(-(?:run|bench) [^`\n]+)`")
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "docs/benchmarks.md", "docs/design.md", "docs/operations.md"} {
		document := string(readRoot(t, name))
		for _, m := range tests.FindAllStringSubmatch(document, -1) {
			if text := m[1] + m[2]; strings.HasPrefix(text, "-") && !finds(files, strings.Fields(text)) {
				t.Errorf("%s: go test %s runs nothing", name, text)
			}
		}
		for _, m := range regexp.MustCompile("`(?:[A-Z_]+=[^ `]+ )?make ([a-z-]+)").FindAllStringSubmatch(document, -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: there is no make %s", name, m[1])
			}
		}
		for _, variable := range regexp.MustCompile(`\bMILENA_(?:SOAK|BENCH|TEST|CPU|SEED)\w*`).FindAllString(document, -1) {
			if !strings.Contains(known, variable) {
				t.Errorf("%s: no test reads %s", name, variable)
			}
		}
	}
}
