// Package metrics holds every metric that Milena exports: names, help, labels and
// buckets stand in declared.go, and docs/metrics.md is made from them. It is called
// by internal/app only; the packages that do the work know hooks and no Prometheus.
//
// Labels come from closed sets, never from what a producer or a customer wrote. The
// one exception is the info series of the worst endpoints, of which there are twenty.
package metrics

import (
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind is a metric's type.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Truth says which aggregation over the processes of one installation is true.
type Truth string

// The truths. Each process exports its own partitions.
const (
	Sum       Truth = "Sum over processes."
	SumRates  Truth = "Sum the buckets' rates over processes."
	Max       Truth = "Maximum over processes."
	Min       Truth = "Minimum over processes."
	MinNotNil Truth = "Minimum over processes, of those that are not 0."
	Each      Truth = "Each process by itself."
)

// Label is one label and where its values come from.
type Label struct {
	Name   string
	Values string // the closed set, in words
}

// Declaration is one metric.
type Declaration struct {
	Name    string
	Kind    Kind
	Help    string // ends in a full stop; the truth follows
	Truth   Truth
	Labels  []Label
	Buckets []float64
	section string
}

// Declared lists every metric of Milena's own, in the order of docs/metrics.md.
var Declared []*Declaration

var section string // that the next declarations belong to

func declare(kind Kind, name string, truth Truth, help string, labels ...Label) *Declaration {
	d := &Declaration{Name: name, Kind: kind, Help: help, Truth: truth, Labels: labels, section: section}
	if kind == Histogram {
		d.Buckets = seconds
	}
	Declared = append(Declared, d)
	return d
}

func (d *Declaration) help() string { return d.Help + " " + string(d.Truth) }

func (d *Declaration) labelNames() []string {
	names := make([]string, len(d.Labels))
	for i, l := range d.Labels {
		names[i] = l.Name
	}
	return names
}

func (d *Declaration) counterVec() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.help()}, d.labelNames())
}

func (d *Declaration) counter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: d.Name, Help: d.help()})
}

func (d *Declaration) gaugeVec() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Name, Help: d.help()}, d.labelNames())
}

func (d *Declaration) gauge() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: d.Name, Help: d.help()})
}

func (d *Declaration) histogramVec() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.help(), Buckets: d.Buckets}, d.labelNames())
}

func (d *Declaration) histogram() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: d.Name, Help: d.help(), Buckets: d.Buckets})
}

func (d *Declaration) desc() *prometheus.Desc {
	return prometheus.NewDesc(d.Name, d.help(), d.labelNames(), nil)
}

// WriteDocs writes docs/metrics.md.
func WriteDocs(w io.Writer) error {
	var b strings.Builder
	b.WriteString(docsHead)
	last := ""
	for _, d := range Declared {
		if d.section != last {
			last = d.section
			fmt.Fprintf(&b, "\n## %s\n\n| metric | type | what it says | true is |\n| --- | --- | --- | --- |\n", last)
		}
		fmt.Fprintf(&b, "| `%s`%s | %s | %s%s | %s |\n", d.Name, labelDocs(d), d.Kind, d.Help, bucketDocs(d), strings.TrimSuffix(string(d.Truth), "."))
	}
	b.WriteString("\n## Labels\n\n| label | values |\n| --- | --- |\n")
	seen := map[Label]bool{}
	for _, d := range Declared {
		for _, l := range d.Labels {
			if !seen[l] {
				seen[l] = true
				fmt.Fprintf(&b, "| `%s` | %s |\n", l.Name, l.Values)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const docsHead = `# Metrics

What a process serves at ` + "`/metrics`" + `. This page is made from internal/metrics/declared.go; a test fails when it is stale
(` + "`make generate`" + ` writes it).

Each process exports its own partitions, and a gauge dies with its process. The last column says how the processes of one
installation are put together; ` + "`milena lag`" + ` tells the same from Kafka alone, also when every process is dead.
Times are Unix seconds: alert on ` + "`time() - x`" + `. Where 0 means none, ask for ` + "`x > 0`" + ` first.
Beside these there are Go's and the process's own (` + "`go_…`, `process_…`" + `).
`

func labelDocs(d *Declaration) string {
	if len(d.Labels) == 0 {
		return ""
	}
	return " {" + strings.Join(d.labelNames(), ", ") + "}"
}

func bucketDocs(d *Declaration) string {
	if d.Kind != Histogram {
		return ""
	}
	return fmt.Sprintf(" Buckets from %g s to %g s.", d.Buckets[0], d.Buckets[len(d.Buckets)-1])
}
