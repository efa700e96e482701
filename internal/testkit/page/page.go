// Package page holds the files that are made from code to that code: a page of the
// documentation, a manifest. Tests call it; with the flag -update they write the files.
package page

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the files that are made from code")

// IsCurrent fails a test where the file is not what was made.
func IsCurrent(t testing.TB, name string, made []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, made, 0o644); err != nil { //nolint:gosec // read by everyone
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(have, made) {
		t.Fatalf("%s is stale (%v): make generate", name, err)
	}
}
