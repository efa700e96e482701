package dispatcher

import (
	"runtime/metrics"
	"time"
)

// starved tells whether this process gets the processor when it wants it. Where it
// does not, every attempt takes longer for our sake, and what they usually take says
// nothing about their endpoints. It goes by how long goroutines that could run have
// waited for a thread (Go's scheduling latencies), one window of the meter at a time.
type starved struct {
	sample [1]metrics.Sample
	before []uint64 // the histogram's counts at the last look
	until  time.Time
}

const (
	starvedWait = 1e-3            // seconds that one of ten goroutines waited for a thread: too long
	starvedHold = 3 * time.Second // for how long a window in which it was so counts
)

// look reads the scheduler's histogram.
func (s *starved) look(now time.Time) {
	s.sample[0].Name = "/sched/latencies:seconds"
	metrics.Read(s.sample[:])
	if s.sample[0].Value.Kind() == metrics.KindFloat64Histogram {
		s.weigh(s.sample[0].Value.Float64Histogram(), now)
	}
}

// weigh compares a histogram, which only grows, with the one of the last look.
func (s *starved) weigh(h *metrics.Float64Histogram, now time.Time) {
	if s.before == nil {
		s.until = now.Add(starvedHold) // of the time of the start, which is no measure of anything, nothing is known
	} else {
		var all, long uint64
		for i, count := range h.Counts {
			n := count - s.before[i]
			all += n
			if h.Buckets[i] >= starvedWait {
				long += n
			}
		}
		if all > 0 && 10*long >= all {
			s.until = now.Add(starvedHold)
		}
	}
	s.before = append(s.before[:0], h.Counts...)
}

func (s *starved) now(now time.Time) bool { return s.until.After(now) }
