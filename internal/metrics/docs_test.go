package metrics

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

func TestDocsAreTheDeclarations(t *testing.T) {
	const name = "../../docs/metrics.md"
	var b bytes.Buffer
	if err := WriteDocs(&b); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil { //nolint:gosec // a page of the documentation
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(have, b.Bytes()) {
		t.Fatalf("docs/metrics.md is stale (%v): make generate", err)
	}
}

func TestEveryNameIsMilenasAndSaysItsUnit(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Declared {
		if seen[d.Name] {
			t.Errorf("%s is declared twice", d.Name)
		}
		seen[d.Name] = true
		if !strings.HasPrefix(d.Name, "milena_") || !strings.HasSuffix(d.Help, ".") || d.Truth == "" {
			t.Errorf("%s: %q", d.Name, d.Help)
		}
		if total := strings.HasSuffix(d.Name, "_total"); total != (d.Kind == Counter) {
			t.Errorf("%s is a %s", d.Name, d.Kind)
		}
		if d.Kind == Histogram && !strings.HasSuffix(d.Name, "_seconds") {
			t.Errorf("%s is a histogram of what?", d.Name)
		}
	}
}
