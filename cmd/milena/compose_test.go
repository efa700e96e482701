package main

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/testkit"
)

// composeFile is docker-compose.yml as far as it concerns us; what is not here is a
// mistake, or wants a look at whether it can be checked too.
type composeFile struct {
	Name     string                    `yaml:"name"`
	Milena   any                       `yaml:"x-milena"`
	Services map[string]composeService `yaml:"services"`
	Volumes  map[string]any            `yaml:"volumes"`
}

type composeService struct {
	Build struct {
		Context, Dockerfile, Target string
	} `yaml:"build"`
	Image       string            `yaml:"image"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	Restart     string            `yaml:"restart"`
	DependsOn   map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	Healthcheck struct {
		Test                       []string
		Interval, Timeout, Retries string
	} `yaml:"healthcheck"`
	StopGracePeriod string `yaml:"stop_grace_period"`
}

const root = "../.."

func readRoot(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	dec := yaml.NewDecoder(strings.NewReader(string(readRoot(t, "docker-compose.yml"))))
	dec.KnownFields(true)
	var c composeFile
	if err := dec.Decode(&c); err != nil {
		t.Fatal(err)
	}
	return c
}

// environ is a service's environment with another address of Kafka, if one is given.
func (s *composeService) environ(brokers ...string) []string {
	var env []string
	for k, v := range s.Environment {
		if k == "MILENA_KAFKA_BROKERS" && len(brokers) > 0 {
			v = strings.Join(brokers, ",")
		}
		env = append(env, k+"="+v)
	}
	return env
}

// ours are the services that run milena.
func (c *composeFile) ours(t *testing.T) []string {
	t.Helper()
	var names []string
	for name, s := range c.Services {
		if s.Build.Target == "milena" {
			names = append(names, name)
		}
	}
	if len(names) < 3 {
		t.Fatalf("only %v run milena", names)
	}
	slices.Sort(names)
	return names
}

func TestComposeNamesOnlyWhatThereIs(t *testing.T) {
	c := readCompose(t)
	dockerfile := string(readRoot(t, "deploy/Dockerfile"))
	pinned := regexp.MustCompile(`^[a-z0-9./-]+:v?\d+\.\d+\.\d+$`)
	for name, s := range c.Services {
		switch {
		case s.Build.Context == "":
			if !pinned.MatchString(s.Image) {
				t.Errorf("%s: the image %q has no exact version", name, s.Image)
			}
		case s.Build.Context != "." || s.Build.Dockerfile != "deploy/Dockerfile" || !strings.Contains(dockerfile, " AS "+s.Build.Target+"\n"):
			t.Errorf("%s: there is no such build: %+v", name, s.Build)
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if strings.HasPrefix(from, ".") {
				if _, err := os.Stat(filepath.Join(root, from)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else if _, ok := c.Volumes[from]; !ok {
				t.Errorf("%s: no volume %s", name, from)
			}
		}
		for other, on := range s.DependsOn {
			d, ok := c.Services[other]
			if !ok || on.Condition == "service_healthy" && len(d.Healthcheck.Test) == 0 || on.Condition == "service_completed_successfully" && d.Restart != "no" {
				t.Errorf("%s depends on %s, %s", name, other, on.Condition)
			}
		}
	}
	for _, m := range regexp.MustCompile(`go build .*? (\./\S+)`).FindAllStringSubmatch(dockerfile, -1) {
		if _, err := os.Stat(filepath.Join(root, m[1], "main.go")); err != nil {
			t.Errorf("Dockerfile: %v", err)
		}
	}
}

func TestComposeIsAcceptedByTheBinary(t *testing.T) {
	c := readCompose(t)
	empty := t.TempDir() // no .milena of whoever runs the test
	for _, name := range c.ours(t) {
		s := c.Services[name]
		cmd, rest, err := (&program{}).root().Find(s.Command)
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err != nil || cmd.RunE == nil || cmd.HasSubCommands() {
			t.Errorf("%s: milena %s: %v", name, strings.Join(s.Command, " "), err)
		}
	}
	secret, err := filepath.Abs(filepath.Join(root, "deploy", "compose", "echo.secret"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(empty)
	for _, name := range c.ours(t) {
		s := c.Services[name]
		if res := run(t, "", s.environ(), "config", "check"); res.code != exitDone {
			t.Errorf("%s: %+v", name, res)
		}
	}
	// What they do, on a broker of one node as the file has it.
	fake := testkit.NewFake(t, testkit.WithBrokers(1))
	do := func(name string) {
		t.Helper()
		s := c.Services[name]
		args := slices.Clone(s.Command)
		for i := range args {
			args[i] = strings.Replace(args[i], "/etc/milena/echo.secret", secret, 1)
		}
		if res := run(t, "", s.environ(fake.Brokers()...), args...); res.code != exitDone {
			t.Errorf("milena %s: %+v", strings.Join(args, " "), res)
		}
	}
	do("topics")
	do("endpoint")
}

func TestComposePortsMeet(t *testing.T) {
	prometheus := string(readRoot(t, "deploy/prometheus/prometheus.yml"))
	c := readCompose(t)
	for _, name := range c.ours(t) {
		s := c.Services[name]
		loaded, err := config.Load(config.Options{Environ: s.environ()})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range loaded.Kafka.Brokers {
			if !strings.Contains(c.Services["kafka"].Environment["KAFKA_ADVERTISED_LISTENERS"], "://"+b) {
				t.Errorf("%s: no listener of kafka is at %s", name, b)
			}
		}
		_, port, err := net.SplitHostPort(loaded.HTTP.Addr)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Ports {
			if !strings.HasSuffix(p, ":"+port) {
				t.Errorf("%s publishes %s and listens on %s", name, p, port)
			}
		}
		if s.Command[0] == "serve" && !strings.Contains(prometheus, `"`+name+":"+port+`"`) {
			t.Errorf("prometheus does not ask %s:%s", name, port)
		}
	}
	echo := c.Services["echo"].Environment["ECHO_ADDR"]
	for _, arg := range c.Services["endpoint"].Command {
		if raw, ok := strings.CutPrefix(arg, "--url="); ok {
			u, err := url.Parse(raw)
			if err != nil || u.Hostname() != "echo" || ":"+u.Port() != echo {
				t.Errorf("the endpoint is %s, the receiver listens on %s: %v", raw, echo, err)
			}
		}
	}
}
