package devmode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/milena-project/milena/internal/registry"
)

// Names in the data directory.
const (
	configName  = "milena.yaml"
	keyringName = "keyring"
)

const yamlText = `# Written by "milena dev" at every start. Commands that find it as .milena/milena.yaml read
# it when no other configuration is named; MILENA_CONFIG names one elsewhere.
kafka:
  brokers: [%q]
keyring_file: %s
# What was sent before the first start is delivered too.
initial_offset: earliest
egress:
  # Endpoints on this machine are allowed here, and only here.
  allow_cidrs: [127.0.0.0/8, "::1/128"]
  allow_hosts: [localhost]
  allow_http: true
  ports: [1-65535]
http:
  addr: %q
`

// prepare makes what stands beside the broker's data: the key ring, which is kept
// if it is there because the endpoints' secrets are sealed with it, and the
// configuration, which follows this start. It returns the configuration's path.
func prepare(dir, brokerAddr, httpAddr string) (string, error) {
	ring := filepath.Join(dir, keyringName)
	if _, err := os.Stat(ring); errors.Is(err, fs.ErrNotExist) {
		entry, err := registry.GenerateKey("dev")
		if err != nil {
			return "", err
		}
		if err := writeFile(ring, entry+"\n"); err != nil {
			return "", err
		}
	}
	name := filepath.Join(dir, configName)
	return name, writeFile(name, fmt.Sprintf(yamlText, brokerAddr, keyringName, httpAddr))
}

// writeFile replaces a file as a whole, so that a reader never sees half of it.
func writeFile(name, text string) error {
	tmp := name + ".new"
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return fmt.Errorf("the data directory cannot be written: %w", err)
	}
	if err := os.Rename(tmp, name); err != nil {
		return fmt.Errorf("the data directory cannot be written: %w", err)
	}
	return nil
}
