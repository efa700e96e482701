package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is what a process is at one moment. What a process has no part in stays
// zero, and what only a dispatcher has is left out without one.
type State struct {
	Topics       []TopicState
	Owned        map[string]int // partitions, by role
	MetadataUsed float64        // share of the room in commit metadata; see milena_commit_metadata_used_ratio
	Ready        bool
	Blocked      time.Time // since when writes are not acknowledged; zero: they are
	Endpoints    int       // registered
	Registry     time.Time // as of when all that is committed of it is known

	Dispatcher *DispatcherState // nil: not a role of this process
}

// TopicState is the backlog of one topic that is consumed, in this process's partitions.
type TopicState struct {
	Topic      string
	Unfinished int64
	Oldest     time.Time // zero: nothing is ready and not settled
}

// DispatcherState is the dispatcher's part.
type DispatcherState struct {
	InFlight, Queued int
	QueuedBytes      int64
	Owns             bool // a partition; who has none does not know what is on hold
	Held             int
	OldestHeld       time.Time
	Lanes            map[string]int // by state; states without a lane may be missing
	Breakers         map[string]int
	Failing          int
	CutOff           time.Time
	Worst            []WorstEndpoint // at most twenty, the worst first
}

// WorstEndpoint is one endpoint that much waits for, or that fails.
type WorstEndpoint struct {
	ID, Why string
	Records int
	Since   time.Time // it has failed; zero: it has not
}

var (
	laneStates    = []string{"sending", "queued", "held", "paused", "undecided", "idle"}
	breakerStates = []string{"closed", "open", "half-open"}
)

// scrape asks for the state once a scrape.
type scrape struct {
	state func() State
	descs map[*Declaration]*prometheus.Desc
}

func newScrape(state func() State) *scrape {
	s := &scrape{state: state, descs: map[*Declaration]*prometheus.Desc{}}
	for _, d := range []*Declaration{oldestReady, unfinished, heldRecords, oldestHeld, queued, queuedBytes, inFlight,
		lanesByState, breakersByState, failing, worst, worstRecords, worstSince, cutOff,
		endpoints, registry, settleBlocked, metadata, owned, ready} {
		s.descs[d] = d.desc()
	}
	return s
}

// Describe implements prometheus.Collector.
func (s *scrape) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *scrape) Collect(ch chan<- prometheus.Metric) {
	put := func(d *Declaration, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(s.descs[d], prometheus.GaugeValue, v, labels...)
	}
	st := s.state()
	now := unix(time.Now())
	for _, t := range st.Topics {
		put(unfinished, float64(t.Unfinished), t.Topic)
		oldest := unix(t.Oldest)
		if t.Oldest.IsZero() {
			oldest = now
		}
		put(oldestReady, oldest, t.Topic)
	}
	for role, n := range st.Owned {
		put(owned, float64(n), role)
	}
	put(metadata, st.MetadataUsed)
	put(ready, truth(st.Ready))
	put(settleBlocked, unix(st.Blocked))
	put(endpoints, float64(st.Endpoints))
	put(registry, unix(st.Registry))
	if st.Dispatcher != nil {
		st.Dispatcher.collect(put)
	}
}

func (st *DispatcherState) collect(put func(*Declaration, float64, ...string)) {
	put(inFlight, float64(st.InFlight))
	put(queued, float64(st.Queued))
	put(queuedBytes, float64(st.QueuedBytes))
	if st.Owns {
		put(heldRecords, float64(st.Held))
		put(oldestHeld, unix(st.OldestHeld))
	}
	put(failing, float64(st.Failing))
	put(cutOff, unix(st.CutOff))
	for _, state := range laneStates {
		put(lanesByState, float64(st.Lanes[state]), state)
	}
	for _, state := range breakerStates {
		put(breakersByState, float64(st.Breakers[state]), state)
	}
	for i, e := range st.Worst {
		rank := strconv.Itoa(i + 1)
		put(worst, 1, rank, e.ID, e.Why)
		put(worstRecords, float64(e.Records), rank)
		put(worstSince, unix(e.Since), rank)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
