package config

import (
	"net/url"
	"os"
	"strings"
)

// Masked stands in for a secret wherever a configuration is printed.
const Masked = "********"

// mask hides what must not be printed.
func (k *Key) mask(text string) string {
	switch {
	case text == "":
		return ""
	case k.Secret:
		return Masked
	case k.URL:
		u, err := url.Parse(text)
		if err != nil {
			return Masked
		}
		if u.User != nil {
			u.User = url.User(Masked)
		}
		return strings.ReplaceAll(u.String(), "%2A", "*")
	}
	return text
}

// readSecrets fills each secret from the file beside it. Of a secret and its file
// the one from the stronger layer counts; both from the same layer is a problem.
func (l *Loaded) readSecrets(rank map[string]int) (problems []Problem) {
	for i := range Keys {
		key := &Keys[i]
		if !key.Secret {
			continue
		}
		file := Lookup(key.Path + "_file")
		fileName := l.textOf(file)
		if fileName == "" {
			continue
		}
		if l.texts[key.Path] != "" {
			if rank[key.Path] == rank[file.Path] {
				problems = append(problems, Problem{Key: key.Path, Source: l.sources[key.Path],
					Want: "either it or " + file.Path + " (" + l.sources[file.Path] + "), not both"})
				continue
			}
			if rank[key.Path] > rank[file.Path] {
				*file.field(&l.Config).(*path) = ""
				continue
			}
		}
		data, err := os.ReadFile(fileName)
		secret := strings.TrimRight(string(data), "\r\n")
		if err == nil && secret != "" {
			*key.field(&l.Config).(*string) = secret
			l.sources[key.Path] = "file " + fileName
			continue
		}
		want := "a file that can be read and is not empty"
		if err != nil {
			want += "; " + err.Error()
		}
		problems = append(problems, Problem{Key: file.Path, Value: fileName, Source: l.sources[file.Path], Want: want})
	}
	return problems
}
