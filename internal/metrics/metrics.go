// Package metrics holds every metric that Milena exports: names, help, labels and
// buckets stand in this one file. It is called by internal/app only; the packages
// that do the work know hooks and no Prometheus.
//
// Labels come from closed sets, never from what a producer or a customer wrote.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/milena-project/milena/schemas"
)

// Metrics are one process's metrics, in a registry of their own.
type Metrics struct {
	Registry *prometheus.Registry

	attempts      *prometheus.CounterVec
	attemptTime   prometheus.Histogram
	dispatchDelay prometheus.Histogram
	dead          *prometheus.CounterVec
	duplicates    prometheus.Counter
	misrouted     prometheus.Counter
	interrupted   *prometheus.CounterVec
	parked        *prometheus.CounterVec
	released      prometheus.Counter
	releaseLate   prometheus.Histogram
	held          *prometheus.CounterVec
	holdRead      prometheus.Counter
	breakers      *prometheus.CounterVec
	routed        prometheus.Counter
	fannedOut     prometheus.Counter
	unmatched     prometheus.Counter
	skew          prometheus.Gauge
	waiting       *prometheus.GaugeVec
	overdue       *prometheus.GaugeVec
	oldestOverdue *prometheus.GaugeVec
	nearRecords   prometheus.Gauge
	nearBytes     prometheus.Gauge
	openLetters   *prometheus.GaugeVec
	oldestLetter  prometheus.Gauge
	letterLeft    prometheus.Gauge
}

// seconds are buckets from a millisecond to a minute.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 60}

// New makes the metrics of a process of that version.
func New(version string) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "milena_attempts_total",
			Help: "Attempts that came to an outcome, and deliveries that ended without one. Sum over processes.",
		}, []string{"outcome", "status_class", "error_class", "origin"}),
		attemptTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "milena_attempt_duration_seconds", Buckets: seconds,
			Help: "From the start of an attempt to its answer. Sum the buckets over processes.",
		}),
		dispatchDelay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "milena_dispatch_delay_seconds", Buckets: seconds,
			Help: "From when a delivery was ready to the first byte of its request: our own service level. Sum the buckets over processes.",
		}),
		dead: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "milena_dead_letters_total", Help: "Deliveries that died, by reason. Sum over processes.",
		}, []string{"reason"}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "milena_duplicates_dropped_total", Help: "Copies of one attempt that were dropped before they were POSTed. Sum over processes.",
		}),
		misrouted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "milena_misrouted_total", Help: "Records found in another partition than their endpoint's, and sent on. Sum over processes.",
		}),
		interrupted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "milena_interrupted_total", Help: "Attempts that came to no outcome for a reason of our own. Sum over processes.",
		}, []string{"error_class"}),
		parked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "milena_parked_total", Help: "Writes to a tier: first ones and moves from tier to tier. Sum over processes.",
		}, []string{"tier"}),
		released: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "milena_released_total", Help: "Deliveries that were due and went back to the deliveries topic. Sum over processes.",
		}),
		releaseLate: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "milena_release_lateness_seconds", Buckets: seconds,
			Help: "How long after its due time a delivery was back on the deliveries topic. Sum the buckets over processes.",
		}),
		held: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "milena_holds_total", Help: "Deliveries that were put on hold, by cause. Sum over processes.",
		}, []string{"cause"}),
		holdRead: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "milena_hold_read_bytes_total", Help: "Bytes that were read from hold. Sum over processes.",
		}),
		breakers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "milena_breaker_transitions_total", Help: "Transitions of endpoints' breakers. Sum over processes.",
		}, []string{"from", "to"}),
		routed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "milena_events_routed_total", Help: "Events of sources that somebody subscribes to. Sum over processes.",
		}),
		fannedOut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "milena_deliveries_routed_total", Help: "Deliveries that those events became. Sum over processes.",
		}),
		unmatched: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "milena_events_unmatched_total", Help: "Events of sources that nobody subscribes to; they are not stored. Sum over processes.",
		}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "milena_waiting_records", Help: "Records of a tier that wait for their time, of all processes. Maximum over processes.",
		}, []string{"tier"}),
		overdue: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "milena_overdue_records", Help: "Records of a tier that should have moved on by now, of all processes. Maximum over processes.",
		}, []string{"tier"}),
		oldestOverdue: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "milena_oldest_overdue_seconds", Help: "For how long the oldest overdue record of a tier has been ready, of this process's partitions. Maximum over processes.",
		}, []string{"tier"}),
		skew: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "milena_clock_skew_seconds", Help: "How far the brokers' clock is ahead of the clock of whoever parked a record. It decides nothing. Maximum over processes.",
		}),
		nearRecords: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "milena_near_due_records", Help: "Deliveries in the releaser's memory for their last ten seconds. Sum over processes.",
		}),
		nearBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "milena_near_due_bytes", Help: "Bytes of those. Sum over processes.",
		}),
		openLetters: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "milena_dlq_open_letters",
			Help: "Dead letters that nobody has replayed or discarded, by reason, in the partitions that this process owns, as it last counted them. Sum over processes.",
		}, []string{"reason"}),
		oldestLetter: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "milena_dlq_oldest_open_timestamp_seconds", Help: "When the oldest of those was written; 0 where there is none. Smallest over processes, without the zeros.",
		}),
		letterLeft: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "milena_dlq_oldest_open_expires_timestamp_seconds", Help: "When the topic's retention deletes it; 0 where there is none, or never. Smallest over processes, without the zeros.",
		}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "milena_build_info", Help: "1, with the version of this process.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	m.Registry.MustRegister(info, m.attempts, m.attemptTime, m.dispatchDelay, m.dead, m.duplicates, m.misrouted,
		m.interrupted, m.parked, m.released, m.releaseLate, m.held, m.holdRead,
		m.breakers, m.routed, m.fannedOut, m.unmatched, m.skew, m.waiting, m.overdue, m.oldestOverdue, m.nearRecords, m.nearBytes, m.openLetters, m.oldestLetter, m.letterLeft,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves them in Prometheus's format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{})
}

// Gauge registers a figure that is asked for at each scrape.
func (m *Metrics) Gauge(name, help string, value func() float64) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// Attempted counts an attempt record.
func (m *Metrics) Attempted(a *schemas.Attempt) {
	m.attempts.WithLabelValues(string(a.Outcome), statusClass(a.Status), string(a.ErrorClass), originOf(a)).Inc()
	if a.Outcome == schemas.OutcomeDead {
		m.dead.WithLabelValues(string(a.Reason)).Inc()
	}
	if a.Duration > 0 {
		m.attemptTime.Observe(a.Duration / 1000)
		m.dispatchDelay.Observe(a.Delay / 1000)
	}
}

func statusClass(status int) string {
	if status == 0 {
		return ""
	}
	return strconv.Itoa(status/100) + "xx"
}

func originOf(a *schemas.Attempt) string {
	switch {
	case a.Number > 1:
		return "retry"
	case a.Generation > 0 || a.Run != "":
		return "replay"
	default:
		return "first"
	}
}

// Duplicate counts a copy that was dropped.
func (m *Metrics) Duplicate() { m.duplicates.Inc() }

// Misrouted counts a record that was sent on.
func (m *Metrics) Misrouted() { m.misrouted.Inc() }

// Interrupted counts an attempt that came to no outcome.
func (m *Metrics) Interrupted(class schemas.ErrorClass) {
	m.interrupted.WithLabelValues(string(class)).Inc()
}

// Parked counts a write to a tier, by its label.
func (m *Metrics) Parked(tier string) { m.parked.WithLabelValues(tier).Inc() }

// Released counts a delivery that went back, and how long after its due time.
func (m *Metrics) Released(late time.Duration) {
	m.released.Inc()
	m.releaseLate.Observe(late.Seconds())
}

// Held counts a delivery that was put on hold, by its cause.
func (m *Metrics) Held(cause string) { m.held.WithLabelValues(cause).Inc() }

// HoldRead counts bytes that were read from hold.
func (m *Metrics) HoldRead(bytes int) { m.holdRead.Add(float64(bytes)) }

// BreakerChanged counts a transition of an endpoint's breaker.
func (m *Metrics) BreakerChanged(from, to string) { m.breakers.WithLabelValues(from, to).Inc() }

// Routed counts an event of a source, and the deliveries that it became.
func (m *Metrics) Routed(deliveries int) {
	m.routed.Inc()
	m.fannedOut.Add(float64(deliveries))
}

// Unmatched counts an event that nobody subscribes to.
func (m *Metrics) Unmatched() { m.unmatched.Inc() }

// Buried counts a dead letter that has no attempt record: it died before it had an
// endpoint's partition.
func (m *Metrics) Buried(reason schemas.Reason) { m.dead.WithLabelValues(string(reason)).Inc() }

// Backlog notes what waits in a tier, and what should have moved on.
func (m *Metrics) Backlog(tier string, waiting, overdue int64, oldest time.Duration) {
	m.waiting.WithLabelValues(tier).Set(float64(waiting))
	m.overdue.WithLabelValues(tier).Set(float64(overdue))
	m.oldestOverdue.WithLabelValues(tier).Set(oldest.Seconds())
}

// Skew notes how far the brokers' clock is ahead.
func (m *Metrics) Skew(ahead time.Duration) { m.skew.Set(ahead.Seconds()) }

// NearDue notes what waits in the releaser's memory.
func (m *Metrics) NearDue(records int, bytes int64) {
	m.nearRecords.Set(float64(records))
	m.nearBytes.Set(float64(bytes))
}

// OpenLetters notes what was counted in dlq. A zero time is none, or never.
func (m *Metrics) OpenLetters(byReason map[schemas.Reason]int64, oldest, expires time.Time) {
	for _, reason := range schemas.Reasons { // also those that are gone
		m.openLetters.WithLabelValues(string(reason)).Set(float64(byReason[reason]))
	}
	m.oldestLetter.Set(unix(oldest))
	m.letterLeft.Set(unix(expires))
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
