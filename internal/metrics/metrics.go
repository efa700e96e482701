package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/milena-project/milena/schemas"
)

// Metrics are one process's metrics, in a registry of their own. Its methods are
// safe for concurrent use and cheap: they count, and look nothing up.
type Metrics struct {
	// Kafka is the hook of every client of the process.
	Kafka *KafkaHook

	registry *prometheus.Registry

	attempts       *attemptCounters
	duration       prometheus.Histogram
	dispatchDelay  prometheus.Histogram
	deliveredFirst prometheus.Observer
	deliveredLater prometheus.Observer
	interrupted    known
	duplicates     prometheus.Counter

	transitions  map[[2]string]prometheus.Counter
	holds        known
	holdsSettled prometheus.Counter
	holdRead     prometheus.Counter

	parked, released *prometheus.CounterVec
	lateness         prometheus.Histogram
	waiting, overdue *prometheus.GaugeVec
	oldestOverdue    *prometheus.GaugeVec
	near, nearBytes  prometheus.Gauge
	skew             prometheus.Gauge

	dead          known
	openLetters   *prometheus.GaugeVec
	oldestLetter  *prometheus.GaugeVec // of no label: absent until it is known
	letterExpires *prometheus.GaugeVec

	routed, fannedOut, unmatched prometheus.Counter
	tombstones                   prometheus.Counter
	misrouted                    prometheus.Counter
	assignments                  *prometheus.CounterVec
	drift                        prometheus.Gauge
}

// New makes the metrics of a process of that version. state is asked at every scrape.
func New(version string, state func() State) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), Kafka: newKafkaHook(),
		attempts: newAttemptCounters(), duration: attemptDuration.histogram(), dispatchDelay: dispatchDelay.histogram(),
		duplicates: duplicates.counter(), holdsSettled: holdsSettled.counter(), holdRead: holdRead.counter(),
		parked: parked.counterVec(), released: released.counterVec(), lateness: lateness.histogram(),
		waiting: waitingRecords.gaugeVec(), overdue: overdueRecords.gaugeVec(), oldestOverdue: oldestOverdue.gaugeVec(),
		near: nearRecords.gauge(), nearBytes: nearBytes.gauge(), skew: skew.gauge(),
		openLetters: openLetters.gaugeVec(), oldestLetter: oldestLetter.gaugeVec(), letterExpires: letterExpires.gaugeVec(),
		routed: routed.counter(), fannedOut: fannedOut.counter(), unmatched: unmatched.counter(), tombstones: tombstones.counter(),
		misrouted: misrouted.counter(), assignments: assignments.counterVec(), drift: drift.gauge(),
	}
	delays, stopped := deliveryDelay.histogramVec(), interrupted.counterVec()
	m.deliveredFirst, m.deliveredLater = delays.WithLabelValues("true"), delays.WithLabelValues("false")
	m.interrupted = newKnown(stopped, schemas.ErrorClasses)
	causes, changes, buried := holds.counterVec(), transitions.counterVec(), dead.counterVec()
	m.holds = newKnown(causes, []string{"breaker", "paused", "long", "memory", "unknown"})
	m.dead = newKnown(buried, schemas.Reasons)
	m.transitions = map[[2]string]prometheus.Counter{}
	for _, t := range [][2]string{{"closed", "open"}, {"open", "half-open"}, {"half-open", "open"}, {"half-open", "closed"}, {"open", "closed"}} {
		m.transitions[t] = changes.WithLabelValues(t[0], t[1])
	}
	info := build.gaugeVec()
	info.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(info, m.attempts.vec, m.duration, m.dispatchDelay, delays, stopped, m.duplicates,
		changes, causes, m.holdsSettled, m.holdRead,
		m.parked, m.released, m.lateness, m.waiting, m.overdue, m.oldestOverdue, m.near, m.nearBytes, m.skew,
		buried, m.openLetters, m.oldestLetter, m.letterExpires,
		m.routed, m.fannedOut, m.unmatched, m.tombstones, m.misrouted, m.assignments, m.drift,
		m.Kafka, newScrape(state),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves them in Prometheus's format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Attempted counts an attempt record. What was never POSTed has counters of its own.
func (m *Metrics) Attempted(a *schemas.Attempt) {
	if a.Status == 0 && a.ErrorClass == "" {
		return
	}
	m.attempts.count(a)
	m.duration.Observe(a.Duration / 1000)
	m.dispatchDelay.Observe(a.Delay / 1000)
}

// Delivered notes how long after its first record in Kafka a delivery had its 2xx.
func (m *Metrics) Delivered(delay time.Duration, first bool) {
	if first {
		m.deliveredFirst.Observe(delay.Seconds())
	} else {
		m.deliveredLater.Observe(delay.Seconds())
	}
}

// Duplicate counts a copy that was dropped.
func (m *Metrics) Duplicate() { m.duplicates.Inc() }

// Misrouted counts a record that was sent on.
func (m *Metrics) Misrouted() { m.misrouted.Inc() }

// Interrupted counts an attempt that came to no outcome.
func (m *Metrics) Interrupted(class schemas.ErrorClass) { m.interrupted.at(string(class)).Inc() }

// Held counts a delivery that was put on hold, by its cause.
func (m *Metrics) Held(cause string) { m.holds.at(cause).Inc() }

// Unheld counts a delivery that left hold.
func (m *Metrics) Unheld() { m.holdsSettled.Inc() }

// HoldRead counts bytes that were read from hold.
func (m *Metrics) HoldRead(bytes int) { m.holdRead.Add(float64(bytes)) }

// BreakerChanged counts a transition of an endpoint's breaker.
func (m *Metrics) BreakerChanged(from, to string) {
	if c := m.transitions[[2]string{from, to}]; c != nil {
		c.Inc()
	}
}

// Parked counts a write to a tier, by its label.
func (m *Metrics) Parked(tier string) { m.parked.WithLabelValues(tier).Inc() }

// Left counts a record that left a tier.
func (m *Metrics) Left(tier string) { m.released.WithLabelValues(tier).Inc() }

// Released notes how long after its due time a delivery was back.
func (m *Metrics) Released(late time.Duration) { m.lateness.Observe(late.Seconds()) }

// Backlog notes what waits in a tier, and what should have moved on, the oldest
// since then; a zero time: none of it is in this process's partitions.
func (m *Metrics) Backlog(tier string, waiting, overdue int64, oldest time.Time) {
	m.waiting.WithLabelValues(tier).Set(float64(waiting))
	m.overdue.WithLabelValues(tier).Set(float64(overdue))
	if overdue > 0 && oldest.IsZero() { // another process has it, or this one after its first reading
		m.oldestOverdue.DeleteLabelValues(tier)
		return
	}
	m.oldestOverdue.WithLabelValues(tier).Set(unix(oldest))
}

// NearDue notes what waits in the releaser's memory.
func (m *Metrics) NearDue(records int, bytes int64) {
	m.near.Set(float64(records))
	m.nearBytes.Set(float64(bytes))
}

// Skew notes how far the brokers' clock is ahead.
func (m *Metrics) Skew(ahead time.Duration) { m.skew.Set(ahead.Seconds()) }

// Buried counts a dead letter that was written.
func (m *Metrics) Buried(reason schemas.Reason) { m.dead.at(string(reason)).Inc() }

// OpenLetters notes what was counted in dlq. A zero time is none, or never.
func (m *Metrics) OpenLetters(byReason map[schemas.Reason]int64, oldest, expires time.Time) {
	for _, reason := range schemas.Reasons { // also those that are gone
		m.openLetters.WithLabelValues(string(reason)).Set(float64(byReason[reason]))
	}
	m.oldestLetter.WithLabelValues().Set(unix(oldest))
	m.letterExpires.WithLabelValues().Set(unix(expires))
}

// NoLetters notes that this process counts none: it owns no partition.
func (m *Metrics) NoLetters() {
	m.openLetters.Reset()
	m.oldestLetter.Reset()
	m.letterExpires.Reset()
}

// Routed counts an event of a source, and the deliveries that it became.
func (m *Metrics) Routed(deliveries int) {
	m.routed.Inc()
	m.fannedOut.Add(float64(deliveries))
}

// Tombstone counts a record of a source that is no event.
func (m *Metrics) Tombstone() { m.tombstones.Inc() }

// Unmatched counts an event that nobody subscribes to.
func (m *Metrics) Unmatched() { m.unmatched.Inc() }

// Assigned counts a partition that was assigned to a role of this process.
func (m *Metrics) Assigned(role string) { m.assignments.WithLabelValues(role).Inc() }

// Drift notes how many differences to what the topics must be were found.
func (m *Metrics) Drift(differences int) { m.drift.Set(float64(differences)) }

// unix is a time in seconds; 0 for the zero time.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
