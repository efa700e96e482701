package schemas_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

func TestErrorTextsAreBoundedValidAndHarmless(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"503 Service Unavailable":      "503 Service Unavailable",
		"grüße 💌":                      "grüße 💌",
		"a\xff\xfeb":                   "a\ufffd\ufffdb",
		"line\nline\ttab\x1b[31mred":   "line line tab [31mred",
		"c1\u009b31m del\x7f":          "c1 31m del ",
		"rtl\u202eevil sep\u2028":      "rtl evil sep ",
		strings.Repeat("a", 300):       strings.Repeat("a", 256),
		strings.Repeat("a", 255) + "ü": strings.Repeat("a", 255),
		strings.Repeat("💌", 70):        strings.Repeat("💌", 64),
	} {
		if got := schemas.CleanError(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := schemas.CleanError(string(rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(t, "bytes")))
		if len(s) > schemas.MaxErrorLen || !utf8.ValidString(s) || strings.ContainsAny(s, "\x00\n\r\x1b\x7f") || schemas.CleanError(s) != s {
			t.Fatalf("%q", s)
		}
	})
}
