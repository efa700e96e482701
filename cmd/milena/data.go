package main

import (
	"io"
	"os"
	"strings"

	"github.com/milena-project/milena/schemas"
)

// readData is the payload of --data.
func (p *program) readData(data string) ([]byte, error) {
	if data == "-" {
		return io.ReadAll(p.in)
	}
	if name, ok := strings.CutPrefix(data, "@"); ok {
		return os.ReadFile(name)
	}
	return []byte(data), nil
}

// secretFile reads the secret of a flag, which never stands on a command line.
func secretFile(flag, name string) (string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return "", usage("%s: %w", flag, err)
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

func pairsOf(flag, separator string, texts []string) ([]schemas.Pair, error) {
	var pairs []schemas.Pair
	for _, text := range texts {
		name, value, ok := strings.Cut(text, separator)
		if !ok {
			return nil, usage("%s %q: want name%svalue", flag, text, separator)
		}
		pairs = append(pairs, schemas.Pair{Name: strings.TrimSpace(name), Value: strings.TrimSpace(value)})
	}
	return pairs, nil
}
