package metrics

import (
	"bytes"
	"strings"
	"testing"

	"github.com/milena-project/milena/internal/testkit/page"
)

func TestDocsAreTheDeclarations(t *testing.T) {
	var b bytes.Buffer
	if err := WriteDocs(&b); err != nil {
		t.Fatal(err)
	}
	page.IsCurrent(t, "../../docs/metrics.md", b.Bytes())
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
