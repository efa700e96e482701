package logging

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/milena-project/milena/internal/testkit/page"
)

func TestDocsAreTheTableOfKeys(t *testing.T) {
	var b bytes.Buffer
	if err := WriteDocs(&b); err != nil {
		t.Fatal(err)
	}
	page.IsCurrent(t, "../../docs/logs.md", b.Bytes())
}

// Every key that the tree writes is in the table, and the table has no other.
func TestEveryKeyIsInTheTable(t *testing.T) {
	used := map[string]string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testkit" || d.Name() == "flowtest" || d.Name() == "bench" || d.Name() == "examples" || d.Name() == "echo" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		return keysOf(path, used)
	})
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, k := range Keys {
		if known[k.Name] {
			t.Errorf("%s is in the table twice", k.Name)
		}
		known[k.Name] = true
		if used[k.Name] == "" {
			t.Errorf("%s is in the table, and nothing writes it", k.Name)
		}
	}
	for key, where := range used {
		if !known[key] {
			t.Errorf("%s: the key %s is not in the table", where, key)
		}
	}
}

// keysOf collects the keys of a file's log lines.
func keysOf(path string, used map[string]string) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		note := func(args []ast.Expr) {
			for i := 0; i < len(args); i += 2 {
				if key, ok := text(args[i]); ok {
					used[key] = files.Position(args[i].Pos()).String()
				}
			}
		}
		of, _ := sel.X.(*ast.Ident)
		switch name := sel.Sel.Name; {
		case of != nil && of.Name == "slog" && slices.Contains([]string{"String", "Int", "Int64", "Float64", "Bool", "Time", "Duration", "Any"}, name):
			note(call.Args[:1])
		case slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, name) && len(call.Args) > 2 && literal(call.Args[0]):
			note(call.Args[1:])
		case name == "With" && len(call.Args) == 2 && literal(call.Args[0]):
			note(call.Args)
		}
		return true
	})
	return nil
}

func literal(e ast.Expr) bool {
	_, ok := text(e)
	return ok
}

func text(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}
