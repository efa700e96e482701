package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) {
	if args := os.Getenv(asProgram); args != "" {
		os.Args = append([]string{"milena"}, strings.Fields(args)...)
		main()
	}
	time.Local = zone
	testkit.VerifyMain(wrap(m))
}

// zone is that of whoever sits at the tests' terminal: what is local by mistake is seen.
var zone = time.FixedZone("", 5*3600+45*60)

// asProgram names the variable with whose words the tests' process is milena.
const asProgram = "MILENA_TEST_AS_PROGRAM"

// wrap ends what the tests of the process share; real brokers are such a thing.
var wrap = func(m *testing.M) goleak.TestingM { return m }

// result is what a command line came to.
type result struct {
	code     int
	out, err string
}

// run executes one command line in this process.
func run(t *testing.T, stdin string, environ []string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	p := &program{in: strings.NewReader(stdin), out: &out, err: &errOut, environ: environ}
	code := p.run(context.Background(), args)
	if at := strings.Index(out.String(), `+05:45"`); at >= 0 && slices.Contains(args, "--json") {
		t.Errorf("milena %s: a time that is not in UTC: %s", strings.Join(args, " "), out.String()[max(0, at-60):at+7])
	}
	return result{code: code, out: out.String(), err: errOut.String()}
}

// inDir makes dir the working directory of the test.
func inDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	return dir
}

func each(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		if sub.Name() != "help" && sub.Name() != "completion" {
			each(sub, visit)
		}
	}
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	each((&program{}).root(), func(cmd *cobra.Command) {
		if cmd.Example == "" || cmd.Short == "" {
			t.Errorf("%s has no example or no description", cmd.CommandPath())
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no description", cmd.CommandPath(), f.Name)
			}
		})
	})
}

func TestHelpIsAsItWasAgreed(t *testing.T) {
	var all strings.Builder
	var paths [][]string
	each((&program{}).root(), func(cmd *cobra.Command) { paths = append(paths, strings.Fields(cmd.CommandPath())[1:]) })
	for _, path := range paths {
		res := run(t, "", nil, append(path, "--help")...)
		if res.code != exitDone || res.err != "" {
			t.Fatalf("%v --help: %+v", path, res)
		}
		all.WriteString("$ milena " + strings.Join(append(path, "--help"), " ") + "\n" + res.out + "\n")
	}
	golden := filepath.Join("testdata", "help.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(all.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != all.String() {
		t.Errorf("the help has changed; look at it, then: go test ./cmd/milena -update\n%s", firstDifference(string(want), all.String()))
	}
}

func firstDifference(want, have string) string {
	w, h := strings.Split(want, "\n"), strings.Split(have, "\n")
	for i := range min(len(w), len(h)) {
		if w[i] != h[i] {
			return "was: " + w[i] + "\nis:  " + h[i]
		}
	}
	return "one is longer"
}

func TestACheckOfTheConfigurationFindsAKeyRingThatIsNone(t *testing.T) {
	inDir(t)
	res := run(t, "", []string{"MILENA_KEYRING=banana"}, "config", "check", "--brokers", "x:1")
	if res.code != exitUsage || !strings.Contains(res.err, "keyring") || strings.Contains(res.err, "banana") {
		t.Errorf("%+v", res)
	}
}

func TestMistakesInUsageEndWithTwoBeforeAnythingIsTouched(t *testing.T) {
	inDir(t)
	cases := []struct {
		args string
		want string
	}{
		{"nonsense", `unknown command "nonsense"`},
		{"config", "needs a subcommand"},
		{"config check", "--brokers kafka-1:9092"},
		{"config check --broker x", "did you mean --brokers?"},
		{"config check --brokers x:1 --log-level loud", `log.level = "loud" (flag --log-level): want one of debug, info, warn, error`},
		{"config check --brokers x:1 --topics-replication 32768", `topics.replication = "32768" (flag --topics-replication): want`},
		{"config print extra", `"extra" is one word too many: milena config print`},
		{"dve", `unknown command "dve" for "milena"; did you mean milena dev? (milena --help lists them)`},
		{"help nope", `unknown command "nope" for "milena" (milena --help lists them)`},
		{"help dlq lst", "did you mean milena dlq list?"},
		{"dlq lsit", "did you mean milena dlq list?"},
		{"dlq runs list --help", `unknown command "runs" for "milena dlq"; did you mean milena runs? (milena dlq --help lists them)`},
		{"dlq resume", "did you mean milena runs resume?"},
		{"runs wait", "did you mean milena runs show?"},
		{"runs replay", "did you mean milena dlq replay?"},
		{"replay", "did you mean milena dlq replay?"},
		{"redrive -h", "did you mean milena dlq replay?"},
		{"dev --rat 3", "unknown flag: --rat; did you mean --rate? (see milena dev --help)"},
		{"dev --kafka-addr nonsense", `--kafka-addr "nonsense": want an address such as 127.0.0.1:19092`},
		{"dev --kafka-addr :99999", `--kafka-addr ":99999": want`},
		{"dev --forward-to localhost:3000", `--forward-to "localhost:3000": want a URL such as http://localhost:3000/hook`},
		{"dev --events x", `--events "x": want a whole number (see milena dev --help)`},
		{"dev --rate x", `--rate "x": want a number (`},
		{"endpoint list --timeout 5", `--timeout "5": want a duration such as 250ms, 10s or 2h; 5 needs a unit: 5ms or 5s (see milena endpoint list --help)`},
		{"endpoint create --max-age 3d", "3 days are 72h"},
		{"endpoint create --schedule 2s,x", `--schedule "2s,x": want durations such as 2s,5s,1h (`},
		{"endpoint create --brokers x:1 --url https://a.example/ --bearer-file nope", "--bearer-file: open nope: no such file or directory"},
		{"egress check", "URL is missing: milena egress check URL"},
		{"endpoint get", "ID is missing: milena endpoint get ID"},
		{"endpoint get a b", "one ID is wanted, not 2"},
		{"endpoint creat", "milena endpoint --help lists"},
		{"attempts --brokers x:1 --limit 0", "--limit 0 shows none of the past; it is for --follow"},
		{"attempts --brokers x:1 --since yesterday", "how long ago (2h, 3d) or a time"},
		{"endpoint update x --if-version 3", "nothing to change"},
		{"signature sign --data x", "no secret"},
		{"signature verify", "no secret"},
	}
	for _, c := range cases {
		res := run(t, "", nil, strings.Fields(c.args)...)
		if res.code != exitUsage || !strings.Contains(res.err, c.want) {
			t.Errorf("milena %s: exit %d, want 2 with %q in %s", c.args, res.code, c.want, res.err)
		}
	}
}

func TestConfigPrintMasksSecrets(t *testing.T) {
	inDir(t)
	res := run(t, "", []string{"MILENA_KEYRING=k:VERYSECRET", "MILENA_LOG_LEVEL=warn"}, "config", "print", "--json")
	if res.code != 0 || strings.Contains(res.out, "VERYSECRET") || !strings.Contains(res.out, `{"key":"log.level","value":"warn","source":"environment MILENA_LOG_LEVEL"}`) {
		t.Errorf("%+v", res)
	}
}

// full is a disk that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestWhatCannotBeWrittenToStdoutIsNoSuccess(t *testing.T) {
	for _, args := range []string{"version", "version --json", "config print"} {
		var said bytes.Buffer
		p := &program{in: strings.NewReader(""), out: full{}, err: &said}
		if code := p.run(t.Context(), strings.Fields(args)); code != exitFailed || !strings.Contains(said.String(), syscall.ENOSPC.Error()) {
			t.Errorf("milena %s: exit %d, %s", args, code, said.String())
		}
	}
}
