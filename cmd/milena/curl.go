package main

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// writeCurl prints a command for a POSIX shell.
func (p *program) writeCurl(f *signatureFlags, headers http.Header, body []byte) error {
	var b strings.Builder
	b.WriteString("curl --request POST " + quote(f.url))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		for _, value := range headers[name] {
			b.WriteString(" \\\n  --header " + quote(strings.ToLower(name)+": "+value))
		}
	}
	switch {
	case strings.HasPrefix(f.data, "@"):
		b.WriteString(" \\\n  --data-binary " + quote(f.data))
	case bytes.IndexByte(body, 0) >= 0:
		return usage("--data: a body with a zero byte cannot stand in a shell command; use --data @FILE")
	default:
		b.WriteString(" \\\n  --data-raw " + quote(string(body)))
	}
	p.printf("%s\n", b.String())
	return nil
}

// quote makes one word of a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
