package main

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// curlPost shows the answer with its status, and no progress. What stands in brackets
// in a URL is no pattern.
const curlPost = "curl --silent --show-error --include --globoff --request POST "

// writeCurl prints a command for a POSIX shell.
func (p *program) writeCurl(f *signatureFlags, headers http.Header, body []byte) error {
	command := curlOf(f.url, headers)
	switch {
	case strings.HasPrefix(f.data, "@"):
		command += " \\\n  --data-binary " + quote(f.data)
	case bytes.IndexByte(body, 0) >= 0:
		return usage("--data: a body with a zero byte cannot stand in a shell command; use --data @FILE")
	default:
		command += " \\\n  --data-raw " + quote(string(body))
	}
	p.printf("%s\n", command)
	return nil
}

// curlOf is a command for a POSIX shell, without its body.
func curlOf(url string, headers http.Header) string {
	var b strings.Builder
	b.WriteString(curlPost + quote(url))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		for _, value := range headers[name] {
			line := strings.ToLower(name) + ": " + value
			if value == "" {
				line = strings.ToLower(name) + ";" // with a colon curl would leave it out
			}
			b.WriteString(" \\\n  --header " + quote(line))
		}
	}
	return b.String()
}

// quote makes one word of a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
