package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/milena-project/milena/internal/app"
	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/registry"
)

func TestReadingTheConfigurationAgainSaysWhatChanged(t *testing.T) {
	dir := inDir(t)
	key := func(id string) string {
		k, err := registry.GenerateKey(id)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	first := key("k1")
	write("ring", first)
	yaml := "kafka: {brokers: [a:1]}\nkeyring_file: ring\nhttp: {addr: \"127.0.0.1:0\"}\n"
	file := write("m.yaml", yaml+"log: {level: warn}\n")
	load := func() (*config.Loaded, error) { return config.Load(config.Options{File: file, NeedBrokers: true}) }
	loaded, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	level := new(slog.LevelVar)
	log := loaded.Log.NewLogger(&out, level)
	a, err := app.New(loaded.Config, app.Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := a.Run(ended); err != nil { // closes what New has made
			t.Error(err)
		}
	})
	r := &reloader{app: a, log: log, level: level, load: load, loaded: loaded, files: loaded.Files()}
	reload := func() string {
		out.Reset()
		r.reload()
		return out.String()
	}
	write("ring", key("k2")+"\n"+first)
	write("m.yaml", yaml+"log: {level: info, successes: 5%}\ndispatcher: {lane_time: 3s}\n")
	text := reload()
	for _, want := range []string{
		`level=INFO msg="setting changed" setting=log.level old=warn new=info`, "setting=log.successes old=0 new=0.05",
		`level=WARN msg="setting changed; it takes effect at the next start" setting=dispatcher.lane_time old=5s new=3s`,
		`setting=keyring old=******** new=********`, "setting=keyring_file", "settings=4 files=1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, strings.SplitN(first, ":", 2)[1]) {
		t.Errorf("the key ring is in\n%s", text)
	}
	if text := reload(); !strings.Contains(text, "settings=0 files=0") {
		t.Error(text)
	}
	write("m.yaml", "kafka: {brokers: [a:1]}\nnonsense: 1\n")
	if text := reload(); !strings.Contains(text, "was not taken over") || !strings.Contains(text, "nonsense") {
		t.Error(text)
	}
}
