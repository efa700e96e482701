//go:build !kafka

package flowtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.yaml.in/yaml/v3"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
)

// A dashboard that shows nothing on the day on which it is needed, and an alert that
// asks for a figure that nobody exports, look right until then. So a real Prometheus
// watches a process under a load in which everything happens that they describe.
func TestEveryPanelAndEveryAlertFindsItsFigures(t *testing.T) {
	t.Parallel() // most of it is waiting for Prometheus
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		if os.Getenv("MILENA_REQUIRE_PROMETHEUS") != "" {
			t.Fatal(err)
		}
		t.Skip("no prometheus on this machine (Debian: apt-get install prometheus)")
	}
	f := newFlow(t)
	orders := f.source("orders")
	f.troubledEndpoints()
	p := f.start(routes(orders))
	server := httptest.NewServer(p.app.Handler())
	t.Cleanup(server.Close)
	prometheus := startPrometheus(t, binary, server.Listener.Addr().String())
	f.ready(p)

	queries := observedQueries(t)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	begun := time.Now()
	for round := 0; len(queries) > 0; round++ {
		f.trouble(orders, round)
		<-tick.C
		for where, query := range queries {
			if values := prometheus.query(t, query); len(values) > 0 {
				delete(queries, where)
			}
		}
		if time.Since(begun) > testkit.Patience*time.Minute {
			for where, query := range queries {
				t.Errorf("%s finds nothing: %s", where, query)
			}
			return
		}
	}
}

// troubledEndpoints are one for everything that a dashboard shows.
func (f *flow) troubledEndpoints() {
	f.endpoint("good")
	f.endpoint("flaky", schedule(100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond))
	f.receiver.Script("/flaky", func(n int, _ *testkit.Received) testkit.Answer {
		if n%4 == 0 { // too few for its breaker
			return testkit.Answer{Status: 500}
		}
		return testkit.Answer{Status: 200}
	})
	f.endpoint("down") // its breaker opens, and the rest is held
	f.receiver.Script("/down", testkit.Status(503))
	f.endpoint("rejects", preset("proofledger"))
	f.receiver.Script("/rejects", testkit.Status(422))
	f.endpoint("refuses", func(ep *registry.Endpoint) {
		ep.URL = "http://" + testkit.ReserveAddr(f.t) + "/"
	})
}

// trouble is one round of load.
func (f *flow) trouble(orders string, round int) {
	var recs []*kgo.Record
	for _, ep := range []string{"good", "flaky", "down", "rejects", "refuses"} {
		for i := range 5 {
			id := fmt.Sprintf("%s-%d-%d", ep, round, i)
			recs = append(recs, f.record(ep, id, f.body(id, 200)))
		}
	}
	recs = append(recs, f.happened(orders, int32(round%3), fmt.Sprintf("order-%d", round), "", "order.created", []byte(`{}`)))
	testkit.Produce(f.t, f.client, recs...)
}

var (
	selector = regexp.MustCompile(`milena_[a-z0-9_]+\{[^}]*\}`)
	variable = strings.NewReplacer("$__rate_interval", "10s", "$job", "milena")
)

// observedQueries are those of all panels as they stand, and of the alerts what they
// look at: an alert itself is to be empty.
func observedQueries(t *testing.T) map[string]string {
	t.Helper()
	queries := map[string]string{}
	files, err := filepath.Glob("../../deploy/grafana/dashboards/*.json")
	must(t, err)
	for _, name := range files {
		var d struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		data, err := os.ReadFile(name)
		must(t, err)
		must(t, json.Unmarshal(data, &d))
		for _, p := range d.Panels {
			for i, q := range p.Targets {
				queries[fmt.Sprintf("%s: %s (%d)", filepath.Base(name), p.Title, i+1)] = variable.Replace(q.Expr)
			}
		}
	}
	if len(queries) < 60 {
		t.Fatalf("only %d queries in %v", len(queries), files)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Record, Expr string }
		}
	}
	data, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	must(t, err)
	must(t, yaml.Unmarshal(data, &rules))
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Record != "" {
				queries[r.Record] = r.Record
				continue
			}
			queries[r.Alert] = "vector(1) unless absent(" + strings.Join(selector.FindAllString(r.Expr, -1), " or ") + ")"
			if !strings.Contains(r.Expr, "milena_") { // it asks for recorded series
				queries[r.Alert] = r.Expr + " or vector(0)"
			}
			queries[r.Alert+", as it stands"] = "(" + r.Expr + ") or vector(0)"
		}
	}
	return queries
}

type prometheusServer struct{ url string }

// startPrometheus runs one until the test ends; it asks the process each second.
func startPrometheus(t *testing.T, binary, target string) prometheusServer {
	t.Helper()
	rules, err := filepath.Abs("../../deploy/prometheus/alerts.yml")
	must(t, err)
	dir := t.TempDir()
	config := fmt.Sprintf(`{global: {scrape_interval: 1s, evaluation_interval: 1s}, rule_files: [%q],
scrape_configs: [{job_name: milena, static_configs: [{targets: [%q]}]}]}`, rules, target)
	must(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	addr := testkit.ReserveAddr(t)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr, "--log.level=warn")
	var said strings.Builder
	cmd.Stderr = &said
	must(t, cmd.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("prometheus: %s", said.String())
		}
	})
	p := prometheusServer{"http://" + addr}
	testkit.Eventually(t, time.Minute, func() string {
		resp, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return err.Error()
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return ""
	})
	return p
}

// query returns the values that a query finds now, without those that are none (NaN:
// a quantile of nothing, a share of nothing). A query that is refused fails the test.
func (p prometheusServer) query(t *testing.T, expr string) (values []string) {
	t.Helper()
	resp, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Value [2]any }
		}
	}
	must(t, json.Unmarshal(data, &answer))
	if answer.Status != "success" {
		t.Fatalf("%s: %s", expr, answer.Error)
	}
	for _, r := range answer.Data.Result {
		if v, ok := r.Value[1].(string); ok && v != "NaN" {
			values = append(values, v)
		}
	}
	return values
}
