// Package deploy holds what runs Milena elsewhere: images, manifests, rules, dashboards.
// Its tests hold them to the binary, the metrics and the documents; what other tools
// have to say about them is in "make deploy-check".
package deploy

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/milena-project/milena/internal/testkit/page"
)

const alertsFile = "prometheus/alerts.yml"

type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func readRules(t *testing.T) (all []rule) {
	t.Helper()
	var f ruleFile
	readYAML(t, alertsFile, &f)
	for _, g := range f.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// anchors are those of a page's headings, as GitHub makes them.
func anchors(t *testing.T, name string) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(data), -1) {
		slug := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(h[1]), "")
		found[strings.ReplaceAll(slug, " ", "-")] = true
	}
	return found
}

func TestEveryAlertSaysWhatItIsAndWhereToReadOn(t *testing.T) {
	const page = "https://github.com/milena-project/milena/blob/main/docs/operations.md#"
	known := anchors(t, "../docs/operations.md")
	var tests bytes.Buffer
	for _, name := range []string{"prometheus/alerts_test.yml", "prometheus/alerts_days_test.yml"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(data)
	}
	alerts := 0
	for _, r := range readRules(t) {
		if r.Alert == "" {
			continue
		}
		alerts++
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.For == "" {
			t.Errorf("%s: %+v", r.Alert, r)
		}
		anchor, ok := strings.CutPrefix(r.Annotations["runbook_url"], page)
		if !ok || anchor != strings.ToLower(r.Alert) || !known[anchor] {
			t.Errorf("%s: there is no runbook at %q", r.Alert, r.Annotations["runbook_url"])
		}
		if fires := regexp.MustCompile(`alertname: ` + r.Alert + `\s+exp_alerts:`); !fires.Match(tests.Bytes()) {
			t.Errorf("%s: no unit test in which it fires", r.Alert)
		}
	}
	if alerts < 12 {
		t.Errorf("%d alerts", alerts)
	}
}

// The rules exist once; the custom resource is made from them.
func TestThePrometheusRuleHasTheSameRules(t *testing.T) {
	var file yaml.Node
	readYAML(t, alertsFile, &file)
	var b bytes.Buffer
	b.WriteString("# Written by go test ./deploy -update from deploy/prometheus/alerts.yml; change it there.\n")
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(map[string]any{
		"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
		"metadata": map[string]any{"name": "milena", "labels": map[string]string{"app.kubernetes.io/name": "milena"}},
		"spec":     withoutComments(file.Content[0]),
	}); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join("kubernetes", "components", "monitoring", "prometheusrule.yaml")
	page.IsCurrent(t, name, b.Bytes())
}

func withoutComments(n *yaml.Node) *yaml.Node {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	for _, c := range n.Content {
		withoutComments(c)
	}
	return n
}
