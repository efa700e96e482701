package deploy

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/registry"
)

// deployment is what the tests look at; that the rest is right is kubeconform's word.
type deployment struct {
	Spec struct {
		Template struct {
			Spec podSpec
		}
	}
}

type podSpec struct {
	AutomountServiceAccountToken  *bool `yaml:"automountServiceAccountToken"`
	EnableServiceLinks            *bool `yaml:"enableServiceLinks"`
	TerminationGracePeriodSeconds int   `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               struct {
		RunAsNonRoot   bool              `yaml:"runAsNonRoot"`
		SeccompProfile map[string]string `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Containers []container
}

type container struct {
	Args []string
	Env  []struct{ Name, Value string }

	LivenessProbe   probe `yaml:"livenessProbe"`
	ReadinessProbe  probe `yaml:"readinessProbe"`
	Resources       struct{ Limits map[string]string }
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop []string }
	} `yaml:"securityContext"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`

	PeriodSeconds    int `yaml:"periodSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
}

func readPods(t *testing.T) map[string]podSpec {
	t.Helper()
	pods := map[string]podSpec{}
	for _, name := range []string{"kubernetes/base/deployment.yaml", "kubernetes/overlays/trial/topics.yaml"} {
		var d deployment
		readYAML(t, name, &d)
		pods[name] = d.Spec.Template.Spec
	}
	return pods
}

func (c *container) environ() (list []string, byName map[string]string) {
	byName = map[string]string{}
	for _, e := range c.Env {
		list, byName[e.Name] = append(list, e.Name+"="+e.Value), e.Value
	}
	return list, byName
}

func TestPodsHaveNoRightsThatTheyDoNotNeed(t *testing.T) {
	for name, pod := range readPods(t) {
		c := &pod.Containers[0]
		if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s: a token of the service account is in the pod", name)
		}
		// A service called milena would put MILENA_PORT there, which is no setting.
		if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
			t.Errorf("%s: the environment has names of services", name)
		}
		s := c.SecurityContext
		if !pod.SecurityContext.RunAsNonRoot || pod.SecurityContext.SeccompProfile["type"] != "RuntimeDefault" || !s.ReadOnlyRootFilesystem ||
			s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || strings.Join(s.Capabilities.Drop, "") != "ALL" {
			t.Errorf("%s: %+v %+v", name, pod.SecurityContext, s)
		}
	}
}

func TestTheGraceTimeIsEnoughForEveryTimeoutThatCanBeRegistered(t *testing.T) {
	pod := readPods(t)["kubernetes/base/deployment.yaml"]
	_, env := pod.Containers[0].environ()
	told, err := time.ParseDuration(env["MILENA_DISPATCHER_GRACE_TIME"])
	if err != nil || told != time.Duration(pod.TerminationGracePeriodSeconds)*time.Second {
		t.Errorf("the process is told %s, and the pod has %d s: %v", told, pod.TerminationGracePeriodSeconds, err)
	}
	loaded, err := config.Load(config.Options{Environ: []string{"MILENA_KAFKA_BROKERS=kafka:9092", "MILENA_KEYRING=k:x"}})
	if err != nil {
		t.Fatal(err)
	}
	if need := loaded.Dispatcher.DrainBudget + registry.MaxTimeout; told < need {
		t.Errorf("grace time %s, a stop may take %s", told, need)
	}
}

func TestTheCollectorKnowsTheMemoryLimit(t *testing.T) {
	c := readPods(t)["kubernetes/base/deployment.yaml"].Containers[0]
	_, env := c.environ()
	if limit := c.Resources.Limits["memory"]; limit != "2Gi" || env["GOMEMLIMIT"] != "1843MiB" {
		t.Errorf("memory %s, GOMEMLIMIT %s: want nine tenths", limit, env["GOMEMLIMIT"])
	}
}

func TestProbesAskWhatTheProcessAnswers(t *testing.T) {
	c := readPods(t)["kubernetes/base/deployment.yaml"].Containers[0]
	if l := c.LivenessProbe; l.HTTPGet.Path != "/healthz" || l.HTTPGet.Port != "http" {
		t.Errorf("liveness %+v", l)
	}
	r := c.ReadinessProbe
	if r.HTTPGet.Path != "/readyz" || r.HTTPGet.Port != "http" || r.PeriodSeconds*r.FailureThreshold > 15 {
		t.Errorf("readiness %+v", r)
	}
}

// The settings of the base and of the example are settings; files of secrets are
// those that the comments have the operator make.
func TestSettingsOfTheManifestsAreSettings(t *testing.T) {
	pod := readPods(t)["kubernetes/base/deployment.yaml"]
	for _, name := range []string{"kubernetes/base", "kubernetes/overlays/production"} {
		data, err := os.ReadFile(name + "/milena.yaml")
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		for file, content := range map[string]string{"keyring": "k1:x", "kafka-password": "p", "kafka-ca.pem": "x"} {
			if err := os.WriteFile(dir+"/"+file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		text := strings.ReplaceAll(string(data), "/etc/milena/secrets", dir)
		if err := os.WriteFile(dir+"/milena.yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		environ, _ := pod.Containers[0].environ()
		var ours []string
		for _, e := range environ {
			if strings.HasPrefix(e, "MILENA_") && !strings.HasPrefix(e, "MILENA_CONFIG=") {
				ours = append(ours, e)
			}
		}
		if _, err := config.Load(config.Options{Environ: append(ours, "MILENA_CONFIG="+dir+"/milena.yaml")}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
