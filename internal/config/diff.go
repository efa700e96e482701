package config

import (
	"crypto/sha256"
	"os"
)

// Change is a setting that differs between two readings of a configuration.
type Change struct {
	Key      string
	Old, New string // secrets masked
	Live     bool   // it takes effect at once; else at the next start
}

// live are the settings that a running process takes over; see app.Reconfigure.
var live = map[string]bool{"log.level": true, "log.successes": true, "keyring": true}

// Diff lists what differs, in the order of Keys.
func (l *Loaded) Diff(newer *Loaded) (changes []Change) {
	for i := range Keys {
		key := &Keys[i]
		before, after := l.textOf(key), newer.textOf(key)
		if before != after {
			changes = append(changes, Change{key.Path, key.mask(before), key.mask(after), live[key.Path]})
		}
	}
	return changes
}

// Files are hashes of the files that settings name, by setting. Those that cannot be
// read have none.
func (l *Loaded) Files() map[string][sha256.Size]byte {
	sums := map[string][sha256.Size]byte{}
	for i := range Keys {
		if name, ok := Keys[i].field(&l.Config).(*path); ok && *name != "" {
			if data, err := os.ReadFile(string(*name)); err == nil {
				sums[Keys[i].Path] = sha256.Sum256(data)
			}
		}
	}
	return sums
}
