package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/milena-project/milena/internal/metrics"
)

type dashboard struct {
	UID, Title, Description string
	Panels                  []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	FieldConfig              struct {
		Defaults struct{ Unit string }
	}
	Targets []struct{ Expr, LegendFormat string }
}

func readDashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("grafana/dashboards/*.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("dashboards %v: %v", files, err)
	}
	all := map[string]dashboard{}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(data, &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = d
	}
	return all
}

func TestEveryPanelSaysWhatItShowsAndInWhichUnit(t *testing.T) {
	units := []string{"s", "short", "reqps", "eps", "cps", "rps", "wps", "Bps", "bytes", "percentunit"}
	uids := map[string]string{}
	for name, d := range readDashboards(t) {
		if other := uids[d.UID]; other != "" || d.UID == "" || d.Title == "" || d.Description == "" {
			t.Errorf("%s: %q %q, like %q", name, d.UID, d.Title, other)
		}
		uids[d.UID] = name
		ids := map[int]bool{}
		for _, p := range d.Panels {
			if ids[p.ID] || p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: %q: id %d, place %+v", name, p.Title, p.ID, p.GridPos)
			}
			ids[p.ID] = true
			if p.Type == "row" {
				continue
			}
			if p.Title == "" || !strings.HasSuffix(p.Description, ".") || !slices.Contains(units, p.FieldConfig.Defaults.Unit) || len(p.Targets) == 0 {
				t.Errorf("%s: %q: %q in %q, %d queries", name, p.Title, p.Description, p.FieldConfig.Defaults.Unit, len(p.Targets))
			}
		}
	}
}

// foreign are metrics that Go's own collectors export, labels those that Prometheus adds.
var (
	foreign = regexp.MustCompile(`^(go_goroutines|process_(resident_memory_bytes|cpu_seconds_total|open_fds|max_fds))$`)
	added   = []string{"job", "instance", "le", "pod", "namespace"}
	series  = regexp.MustCompile(`((?:milena|go|process)_[a-z0-9_]+)\{([^}]*)\}`)
	bare    = regexp.MustCompile(`(?:^|[^\w:])((?:milena|go|process)_[a-z0-9_]+)(?:[^\w{]|$)`)
	matcher = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouped = regexp.MustCompile(`\b(?:by|on|group_left) \(([^)]*)\)`)
)

// checkQuery fails the test where a query asks for a metric or a label that nobody exports.
func checkQuery(t *testing.T, where, expr string) {
	t.Helper()
	if m := bare.FindStringSubmatch(expr); m != nil {
		t.Errorf("%s: %s without the job: another installation's would be counted too", where, m[1])
	}
	var labels []string
	found := series.FindAllStringSubmatch(expr, -1)
	for _, m := range found {
		d := declared(m[1])
		if d == nil {
			if !foreign.MatchString(m[1]) {
				t.Errorf("%s: nobody exports %s", where, m[1])
			}
			continue
		}
		var own []string
		for _, l := range d.Labels {
			own = append(own, l.Name)
		}
		labels = append(labels, own...)
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(own, l[1]) && !slices.Contains(added, l[1]) {
				t.Errorf("%s: %s has no label %s", where, m[1], l[1])
			}
		}
	}
	if len(found) == 0 && !strings.Contains(expr, "milena:") {
		t.Errorf("%s asks for nothing: %s", where, expr)
	}
	for _, g := range grouped.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(g[1], ",") {
			if l = strings.TrimSpace(l); l != "" && !slices.Contains(labels, l) && !slices.Contains(added, l) {
				t.Errorf("%s: none of its metrics has the label %s", where, l)
			}
		}
	}
}

func declared(name string) *metrics.Declaration {
	for _, d := range metrics.Declared {
		plain := name
		if d.Kind == metrics.Histogram {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				plain = strings.TrimSuffix(plain, suffix)
			}
		}
		if d.Name == plain {
			return d
		}
	}
	return nil
}

func TestQueriesAskForMetricsThatExist(t *testing.T) {
	for name, d := range readDashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				checkQuery(t, name+": "+p.Title, q.Expr)
			}
		}
	}
	recorded := map[string]bool{}
	for _, r := range readRules(t) {
		checkQuery(t, r.Alert+r.Record, r.Expr)
		recorded[r.Record] = true
	}
	var all strings.Builder
	for _, name := range []string{alertsFile, "grafana/dashboards/overview.json", "kubernetes/components/keda/scaledobject.yaml"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	for _, used := range regexp.MustCompile(`milena:[a-z0-9_:]+`).FindAllString(all.String(), -1) {
		if !recorded[used] {
			t.Errorf("nobody records %s", used)
		}
	}
	var scaled struct {
		Spec struct {
			Triggers []struct{ Metadata map[string]string }
		}
	}
	readYAML(t, "kubernetes/components/keda/scaledobject.yaml", &scaled)
	checkQuery(t, "KEDA", scaled.Spec.Triggers[0].Metadata["query"])
}
