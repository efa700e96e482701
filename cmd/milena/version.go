package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is what the binary was built from.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (p *program) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "version", Short: "Say which build this is", Args: noArgs,
		Example: "  milena version --json"}
	jsonFlag(cmd, &asJSON)
	return p.verb(cmd, func(*cobra.Command, []string) error {
		if asJSON {
			return p.writeJSON(readVersion())
		}
		p.sayVersion()
		return nil
	})
}

func (p *program) sayVersion() {
	v := readVersion()
	p.printf("milena %s", v.Version)
	if v.Revision != "" {
		p.printf(" (%.12s, %s)", v.Revision, v.Time)
	}
	p.printf(" %s %s\n", v.Go, v.Platform)
}

func readVersion() version {
	v := version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
