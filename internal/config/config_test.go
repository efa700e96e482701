package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"github.com/milena-project/milena/internal/testkit/page"
	"github.com/milena-project/milena/schemas"
)

// load reads a configuration from flags, environment and the text of a YAML file.
func load(t *testing.T, yaml string, environ []string, args ...string) (*Loaded, error) {
	t.Helper()
	dir := t.TempDir()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(fs, func(*Key) bool { return true })
	if yaml != "" {
		name := filepath.Join(dir, "m.yaml")
		write(t, name, yaml)
		args = append(args, "--config", name)
	}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(Options{Flags: fs, Environ: environ, Dir: dir, NeedBrokers: true})
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFlagsWinOverEnvironmentOverFileOverDefaults(t *testing.T) {
	yaml := "kafka:\n  brokers: [file:1]\nlog:\n  level: warn\n  format: json\ndispatcher.lane_time: 2s\n"
	env := []string{"MILENA_KAFKA_BROKERS=env:1,env:2", "MILENA_LOG_LEVEL=error"}
	l, err := load(t, yaml, env, "--brokers", "flag:1")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(l.Kafka.Brokers, " "); got != "flag:1" {
		t.Errorf("brokers %s", got)
	}
	if l.Log.Level != "error" || l.Log.Format != "json" || l.Dispatcher.LaneTime != 2*time.Second {
		t.Errorf("%+v %+v", l.Log, l.Dispatcher)
	}
	if l.Dispatcher.QueuedBytes != 512<<20 || l.Dispatcher.MaxInFlight != 4096 {
		t.Errorf("defaults: %+v", l.Dispatcher)
	}
	want := map[string]string{"kafka.brokers": "flag --brokers", "log.level": "environment MILENA_LOG_LEVEL",
		"log.format": "m.yaml:5", "prefix": "default"}
	for path, source := range want {
		if got := l.Source(path); !strings.HasSuffix(got, source) {
			t.Errorf("source of %s: %s, want %s", path, got, source)
		}
	}
}

func TestLongAndShortFlagAreOneSetting(t *testing.T) {
	l, err := load(t, "", nil, "--kafka-brokers", "a:1", "--brokers", "b:2")
	if err != nil || len(l.Kafka.Brokers) != 2 {
		t.Fatal(l, err)
	}
}

func TestDevFileIsReadAndSaysSoUnlessAnotherIsNamed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, DevFile), "kafka.brokers: 127.0.0.1:19092\nkeyring_file: keyring\n")
	write(t, filepath.Join(dir, ".milena/keyring"), "k1:abc\n")
	write(t, filepath.Join(dir, "other.yaml"), "kafka.brokers: other:9092\n")
	var said bytes.Buffer
	l, err := Load(Options{Dir: dir, Notice: &said, NeedBrokers: true})
	if err != nil {
		t.Fatal(err)
	}
	if l.Kafka.Brokers[0] != "127.0.0.1:19092" || l.Keyring != "k1:abc" || !strings.Contains(said.String(), "milena.yaml") {
		t.Error(l.Kafka.Brokers, l.Keyring, said.String())
	}
	said.Reset()
	l, err = Load(Options{Dir: dir, Notice: &said, Environ: []string{"MILENA_CONFIG=" + filepath.Join(dir, "other.yaml")}})
	if err != nil || l.Kafka.Brokers[0] != "other:9092" || said.Len() > 0 {
		t.Error(l, err, said.String())
	}
}

func TestFixedSettingsWin(t *testing.T) {
	l, err := Load(Options{Environ: []string{"MILENA_KAFKA_BROKERS=prod:9092"}, FixedBy: "milena dev",
		Fixed: map[string]string{"kafka.brokers": "127.0.0.1:1"}, NeedBrokers: true})
	if err != nil || l.Kafka.Brokers[0] != "127.0.0.1:1" || l.Source("kafka.brokers") != "milena dev" {
		t.Fatal(l, err)
	}
}

func TestEveryProblemIsReportedWithKeyValueSourceAndWhatIsRight(t *testing.T) {
	yaml := "kafka:\n  brokerz: x:1\n  session_timeout: 5\nbootstrap.servers: y:1\nretry:\n  max_age: 4d\nlog:\n  level: loud\n"
	env := []string{"MILENA_DISPATCHER_MAX_INFLIGHT=3", "MILENA_EGRESS_ALLOW_CIDRS=10.0.0.0/8,nope", "MILENA_PORT=tcp://1.2.3.4:80",
		"MILENA_SERVICE_HOST=1.2.3.4", "MILENA_PORT_8080_TCP_ADDR=1.2.3.4", "MILENA_TEST_BROKERS=a:1"}
	_, err := load(t, yaml, env, "--dispatcher-queued-bytes", "12parsecs")
	var e *Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	text := err.Error()
	for _, want := range []string{
		`m.yaml:2): no such setting; did you mean kafka.brokers?`,
		`kafka.session_timeout = "5" (`, `m.yaml:3): want a duration such as 250ms, 10s or 2h; 5 needs a unit: 5ms or 5s`,
		`bootstrap.servers (`, `m.yaml:4): no such setting; did you mean kafka.brokers?`,
		`retry.max_age = "4d"`, `4 days are 96h`,
		`log.level = "loud"`, `want one of debug, info, warn, error`,
		`MILENA_DISPATCHER_MAX_INFLIGHT (environment): no such setting; did you mean MILENA_DISPATCHER_MAX_IN_FLIGHT?`,
		`egress.allow_cidrs = "10.0.0.0/8,nope" (environment MILENA_EGRESS_ALLOW_CIDRS): want address ranges such as 10.1.0.0/16,fd00::/8; "nope" is not`,
		`dispatcher.queued_bytes = "12parsecs" (flag --dispatcher-queued-bytes): want a size such as 64KiB or 512MiB`,
		`kafka.brokers (not given): there is no default`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %s\nin %s", want, text)
		}
	}
	if len(e.Problems) != 9 {
		t.Errorf("%d problems: %s", len(e.Problems), text)
	}
}

func TestSingleWrongSettings(t *testing.T) {
	cases := []struct{ yaml, want string }{
		{"topics.partitions: 0", "at least 1"},
		{"prefix: my hooks.", "A-Z a-z 0-9 . _ -, as names of topics"},
		{"topics: {replication: 2, min_insync_replicas: 3}", "at most topics.replication"},
		{"dispatcher: {duplicates: {age: 25h}}", "at most 24h0m0s, for which tombstones of dead letters stay"},
		{"dispatcher.commit_interval: 1m", "less than half of kafka.session_timeout"},
		{"http.debug_addr: 0.0.0.0:6060", "loopback"},
		{"http.addr: 8080", "an address such as"},
		{"egress.proxy: proxy:3128", "http://proxy:3128"},
		{"egress.proxy_dns: true", "want egress.proxy too"},
		{"egress.allow_hosts: [10.0.0.1]", "by egress.allow_cidrs"},
		{"egress.ports: [0]", "ports and ranges"},
		{"egress.ports: [443-80]", "ports and ranges"},
		{"retry.tiers: [10s, 1h]", "want 0s among them"},
		{"kafka.sasl.mechanism: scram-sha-256", "want a user name"},
		{"kafka.sasl.mechanism: kerberos", "one of PLAIN, SCRAM-SHA-256"},
		{"kafka.sasl.user: u", "because other settings of kafka.sasl are given"},
		{"kafka.tls.cert_file: c.pem", "together"},
		{"kafka.tls: {enabled: true, ca_file: none.pem}", "can be read"},
		{"kafka.tls: yes", "a group of settings"},
		{"kafka.brokers: {a: 1}", "a value of kind addresses"},
		{"kafka.brokers: [http://kafka]", "addresses such as"},
		{"kafka.brokers: [kafka:x]", "addresses such as"},
		{"kafka.sasl.oauth.extensions: [a]", "pairs such as"},
		{"prefix: a.\nprefix: b.", "it stands in line 1 too"},
		{"roles: [dispatcher, cook]", "some of dispatcher, releaser, router"},
		{"roles: [router]", "because router is the only role"},
		{"sources.topics: [webhooks.retry.1m]", "webhooks.retry.1m is one of Milena's"},
		{"sources.topics: [a/b]", "cannot be one"},
		{"sources: {topics: [a], types: [b=x]}", "b is none"},
		{"sources: {topics: [a], tenants: ['a=header:']}", "header: and a name, for a"},
		{"dispatcher.grace_time: 40s", "want at least 45s"},
		{"keyring_file: none", "can be read and is not empty"},
		{"keyring: a\nkeyring_file: none", "not both"},
		{"ssl.truststore.location: x.jks", "kafka.tls.ca_file (PEM)"},
		{"kafka: {security.protocol: SASL_SSL}", "kafka.tls.enabled"},
		{"max_in_flight: 3", "did you mean dispatcher.max_in_flight?"},
		{"kafka: [", "YAML; line"},
		{"- a", "a group of settings"},
	}
	for _, c := range cases {
		t.Run(c.yaml, func(t *testing.T) {
			_, err := load(t, c.yaml, []string{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q in %v", c.want, err)
			}
		})
	}
}

func TestSecretsHaveNoFlagAndAreMasked(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(fs, func(*Key) bool { return true })
	for _, name := range []string{"keyring", "kafka-sasl-password", "kafka-sasl-oauth-client-secret"} {
		if fs.Lookup(name) != nil {
			t.Errorf("flag --%s exists", name)
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "pw"), "hunter2\n")
	env := []string{"MILENA_KEYRING=k1:SECRET1", "MILENA_EGRESS_PROXY=http://u:SECRET2@proxy:3128"}
	yaml := "kafka.brokers: k:1\nkafka.sasl: {mechanism: PLAIN, user: u, password_file: " + filepath.Join(dir, "pw") + "}\n"
	l, err := load(t, yaml, env)
	if err != nil {
		t.Fatal(err)
	}
	if l.Keyring != "k1:SECRET1" || l.Kafka.SASL.Password != "hunter2" || l.Kafka.SASL.Mechanism != "PLAIN" {
		t.Errorf("%+v", l.Kafka.SASL)
	}
	for _, v := range l.Values() {
		if strings.Contains(v.Value, "SECRET") || strings.Contains(v.Value, "hunter2") {
			t.Errorf("%s is printed: %s", v.Key, v.Value)
		}
	}
	_, err = load(t, "keyring: [SECRET3]\nkafka.sasl.password: {a: SECRET4}\n", []string{"MILENA_EGRESS_PROXY=://u:SECRET2@"})
	if err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Error(err)
	}
}

func TestASecretOfAStrongerSourceWinsOverAFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ring"), "from-file")
	yaml := "kafka.brokers: k:1\nkeyring_file: " + filepath.Join(dir, "ring")
	l, err := load(t, yaml, []string{"MILENA_KEYRING=from-env"})
	if err != nil || l.Keyring != "from-env" || l.KeyringFile != "" {
		t.Fatal(l, err)
	}
}

func TestNamesOfSettingsAreUniqueInEverySpelling(t *testing.T) {
	seen := map[string]string{"config": "--config"}
	for i := range Keys {
		k := &Keys[i]
		for _, name := range []string{normal(k.Path), k.Alias} {
			if other, twice := seen[name]; twice && name != "" {
				t.Errorf("%s and %s have one name", k.Path, other)
			}
			seen[name] = k.Path
		}
		if notOurs.MatchString(k.Env()) {
			t.Errorf("%s is taken for a foreign variable", k.Env())
		}
		if !strings.HasSuffix(k.Doc, ".") || k.field(new(Config)) == nil {
			t.Errorf("%s: doc or field", k.Path)
		}
		if to := foreign[k.Path]; to != "" {
			t.Errorf("%s is foreign and ours", k.Path)
		}
	}
}

func TestConfigurationPageIsCurrent(t *testing.T) {
	var b bytes.Buffer
	if err := WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	page.IsCurrent(t, "../../docs/configuration.md", b.Bytes())
}

func TestPrintedValuesLoadToTheSameConfiguration(t *testing.T) {
	l, err := load(t, "kafka.brokers: [a:1, b:2]\negress: {allow_cidrs: [10.0.0.1, fd00::/8], ports: [80, 1024-2048]}\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	fixed := map[string]string{}
	for _, v := range l.Values() {
		if v.Value != "" {
			fixed[v.Key] = v.Value
		}
	}
	again, err := Load(Options{Fixed: fixed, FixedBy: "print", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range again.Values() {
		if v.Value != l.Values()[i].Value {
			t.Errorf("%s: %q became %q", v.Key, l.Values()[i].Value, v.Value)
		}
	}
}

func TestDefaultsAreThoseThatEveryPackageMeans(t *testing.T) {
	l, err := load(t, "kafka.brokers: [a:1]\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	if l.Retry.MaxAge != schemas.DefaultMaxAge || !slices.Equal(l.Retry.Tiers, schemas.DefaultTiers()) {
		t.Errorf("max age %s and tiers %v, want %s and %v", l.Retry.MaxAge, l.Retry.Tiers, schemas.DefaultMaxAge, schemas.DefaultTiers())
	}
}

func TestSizesSurviveTheirText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Size(rapid.Int64Min(0).Draw(t, "size"))
		if back, err := ParseSize(s.String()); err != nil || back != s {
			t.Fatalf("%d as %s became %d, %v", s, s, back, err)
		}
	})
}

func FuzzYAML(f *testing.F) {
	f.Add("kafka:\n  brokers: [a:1]\n")
	f.Add("a: &x {kafka: *x}\n")
	f.Add("kafka: &k\n  tls: *k\n")
	f.Fuzz(func(t *testing.T, text string) {
		name := filepath.Join(t.TempDir(), "f.yaml")
		write(t, name, text)
		_, err := Load(Options{Environ: []string{"MILENA_CONFIG=" + name}})
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Fatal(err)
		}
	})
}

// What is not read must not look as if it counted.
func TestASecondYAMLDocumentIsAMistake(t *testing.T) {
	_, err := load(t, "kafka:\n  brokers: [a:1]\n---\nlog:\n  level: debug\n", nil)
	if err == nil || !strings.Contains(err.Error(), "one YAML document") {
		t.Error(err)
	}
	for _, whole := range []string{"---\nkafka:\n  brokers: [a:1]\n", "kafka:\n  brokers: [a:1]\n...\n", "# nothing\n"} {
		if _, err := load(t, whole, []string{"MILENA_KAFKA_BROKERS=a:1"}); err != nil {
			t.Errorf("%q: %v", whole, err)
		}
	}
}
