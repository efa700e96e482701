package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
)

// devArgs keep a run away from the ports and the directory of a real one.
func devArgs(more ...string) []string {
	return append([]string{"dev", "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, more...)
}

// addressed is what stands before an address at the start.
var addressed = regexp.MustCompile(`(?m)^  (Kafka protocol|HTTP|endpoint \w+) +`)

func TestDevDeliversAndVerifiesEveryEvent(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	inDir(t)
	for _, start := range []string{"first", "second"} { // the second continues the data
		res := run(t, "", nil, devArgs("--events", "100", "--exit")...)
		if res.code != exitDone {
			t.Fatalf("%s start: %+v", start, res)
		}
		for _, want := range []string{"100 events sent, 175 deliveries", "0 wrong", "payment.captured", "endpoint flaky", "Ready after"} {
			if !strings.Contains(res.out, want) {
				t.Errorf("%s start: no %q in\n%s", start, want, res.out)
			}
		}
		for line := range strings.Lines(res.out) {
			if try, ok := strings.CutPrefix(line, "  milena "); ok && !strings.Contains(string(readme), "\nmilena "+strings.TrimSpace(try)) {
				t.Errorf("the README has another thing to try than %q", line)
			}
		}
		if names := addressed.FindAllString(res.out, -1); len(names) != 5 || slices.ContainsFunc(names, func(n string) bool { return len(n) != len(names[0]) }) {
			t.Errorf("%s start: the addresses are not in one column: %q", start, names)
		}
		if strings.ContainsRune(res.out, '\x1b') {
			t.Errorf("%s start: escapes in what is no terminal", start)
		}
	}
	info, err := os.Stat(filepath.Join(".milena", "keyring"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if res := run(t, "", nil, "config", "print"); res.code != exitDone || !strings.Contains(res.out, "127.0.0.1:0") {
		t.Errorf("the file says another address than --http-addr: %+v", res)
	}
	if res := run(t, "", nil, "attempts", "--timeout", "1s"); res.code != exitFailed || !strings.HasSuffix(res.err, "; is milena dev running?\n") {
		t.Errorf("after its end: %+v", res)
	}
	if res := run(t, "", nil, "config", "check"); res.code != exitDone || !strings.Contains(res.err, "using .milena/milena.yaml") {
		t.Errorf("%+v", res)
	}
}

func TestDevForwardsToAReceiverOfOnesOwn(t *testing.T) {
	inDir(t)
	var posts atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) { posts.Add(1) }))
	defer srv.Close()
	if res := run(t, "", nil, devArgs("--events", "40", "--exit")...); res.code != exitDone {
		t.Fatalf("%+v", res)
	}
	// What the first run left waiting for the sample endpoints is still verified.
	res := run(t, "", nil, devArgs("--events", "20", "--exit", "--forward-to", srv.URL+"/hook")...)
	if res.code != exitDone || strings.Contains(res.out, " 404 ") || posts.Load() != 20 || !strings.Contains(res.out, "verifies with the secret  whsec_") {
		t.Errorf("%d posts, %+v", posts.Load(), res)
	}
	if !strings.Contains(res.out, "20 events sent, 20 deliveries for endpoints:\n20 delivered, 0 dead, 0 waiting") {
		t.Errorf("what is not this run's is counted:\n%s", res.out)
	}
}

func TestDevExitsWithOneWhenEventsDie(t *testing.T) {
	inDir(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	defer srv.Close()
	res := run(t, "", nil, devArgs("--events", "3", "--exit", "--forward-to", srv.URL)...)
	if res.code != exitFailed || !strings.Contains(res.err, "0 of 3 arrived at endpoint forward, 3 died") {
		t.Errorf("%+v", res)
	}
}

// watcher calls seen once when the text has been written.
type watcher struct {
	mu   sync.Mutex
	all  strings.Builder
	text string
	seen func()
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all.Write(p)
	if w.seen != nil && strings.Contains(w.all.String(), w.text) {
		w.seen()
		w.seen = nil
	}
	return len(p), nil
}

func TestDevEndsCleanlyWhenItIsInterrupted(t *testing.T) {
	inDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &watcher{text: "  delivered ", seen: cancel}
	p := &program{in: strings.NewReader(""), out: out, err: out}
	if code := p.run(ctx, devArgs("--rate", "20")); code != exitDone || !strings.Contains(out.all.String(), "sent, ") {
		t.Errorf("%d %s", code, out.all.String())
	}
}

func TestDevTellsOfABreakerThatOpens(t *testing.T) {
	inDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience*time.Minute)
	defer cancel()
	out := &watcher{text: "  breaker     dead         open, next try at ", seen: cancel}
	p := &program{in: strings.NewReader(""), out: out, err: out}
	if code := p.run(ctx, devArgs("--rate", "40")); code != exitDone || !strings.Contains(out.all.String(), out.text) {
		t.Errorf("%d %s", code, out.all.String())
	}
}

func TestDevNamesItsFlagForATakenPortBeforeItMakesAnything(t *testing.T) {
	inDir(t)
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	addr := srv.Listener.Addr().String()
	res := run(t, "", nil, "dev", "--kafka-addr", "127.0.0.1:0", "--http-addr", addr)
	if res.code != exitFailed || res.out != "" || !strings.Contains(res.err, addr+" is in use by another program; give another address with --http-addr") {
		t.Errorf("%+v", res)
	}
}

func TestDevSaysHowItsOtherDirectoryIsFound(t *testing.T) {
	inDir(t)
	res := run(t, "", nil, devArgs("--events", "1", "--exit", "--data-dir", "other")...)
	if res.code != exitDone || !strings.Contains(res.out, `export MILENA_CONFIG="other/milena.yaml"`) {
		t.Fatalf("%+v", res)
	}
}

func TestMistakesInUsageOfDev(t *testing.T) {
	inDir(t)
	for args, want := range map[string]string{
		"--exit":                        "--exit needs --events",
		"--events -1":                   "want 1 or more",
		"--rate -2":                     "as fast as it goes",
		"--config x.yaml":               "a configuration of its own",
		"--log-level loud":              "log.level",
		"--forward-to http://10.1.1.1/": "10.1.1.1",
	} {
		res := run(t, "", nil, devArgs(strings.Fields(args)...)...)
		if res.code != exitUsage || !strings.Contains(res.err, want) {
			t.Errorf("dev %s: %+v, want %q", args, res, want)
		}
	}
}
