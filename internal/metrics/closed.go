package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/milena-project/milena/schemas"
)

// Looking a child up by its label values costs more than counting. So the children
// of what is counted for each attempt are found once, and stand in arrays that are
// indexed by closed sets.

// known are the counters of one label with a closed set of values, which all exist
// from the start: a rate needs a series that was 0 before.
type known struct {
	of    map[string]prometheus.Counter
	other prometheus.Counter // a value that is not in the set; made by nobody
}

func newKnown[T ~string](vec *prometheus.CounterVec, values []T) known {
	k := known{of: make(map[string]prometheus.Counter, len(values)), other: prometheus.NewCounter(prometheus.CounterOpts{Name: "other"})}
	for _, v := range values {
		k.of[string(v)] = vec.WithLabelValues(string(v))
	}
	return k
}

func (k known) at(value string) prometheus.Counter {
	if c := k.of[value]; c != nil {
		return c
	}
	return k.other
}

// The dimensions of milena_attempts_total, in the order of its labels.
var (
	outcomes      = []string{string(schemas.OutcomeDelivered), string(schemas.OutcomeRetry), string(schemas.OutcomeDead)}
	statusClasses = []string{"", "1xx", "2xx", "3xx", "4xx", "5xx"}
	errorClasses  = func() []string {
		all := []string{""}
		for _, c := range schemas.ErrorClasses {
			all = append(all, string(c))
		}
		return all
	}()
	origins = []string{"first", "retry", "replay"}
)

// attemptCounters are the children of milena_attempts_total, made when they are
// first counted: most combinations never come.
type attemptCounters struct {
	vec      *prometheus.CounterVec
	classes  map[schemas.ErrorClass]int
	children []atomic.Pointer[prometheus.Counter]
}

func newAttemptCounters() *attemptCounters {
	c := &attemptCounters{
		vec: attemptsTotal.counterVec(), classes: map[schemas.ErrorClass]int{},
		children: make([]atomic.Pointer[prometheus.Counter], len(outcomes)*len(statusClasses)*len(errorClasses)*len(origins)),
	}
	for i, class := range errorClasses {
		c.classes[schemas.ErrorClass(class)] = i
	}
	return c
}

func (c *attemptCounters) count(a *schemas.Attempt) {
	outcome, status, class, origin := outcomeIndex(a.Outcome), statusIndex(a.Status), 0, originIndex(a)
	if a.ErrorClass != "" {
		class = c.classes[a.ErrorClass]
	}
	child := &c.children[((outcome*len(statusClasses)+status)*len(errorClasses)+class)*len(origins)+origin]
	if counter := child.Load(); counter != nil {
		(*counter).Inc()
		return
	}
	counter := c.vec.WithLabelValues(outcomes[outcome], statusClasses[status], errorClasses[class], origins[origin])
	child.Store(&counter)
	counter.Inc()
}

func outcomeIndex(o schemas.Outcome) int {
	switch o {
	case schemas.OutcomeDelivered:
		return 0
	case schemas.OutcomeRetry:
		return 1
	default:
		return 2
	}
}

func statusIndex(status int) int {
	if class := status / 100; class >= 1 && class <= 5 {
		return class
	}
	return 0
}

func originIndex(a *schemas.Attempt) int {
	switch {
	case a.Number > 1:
		return 1
	case a.Generation > 0 || a.Run != "":
		return 2
	default:
		return 0
	}
}
