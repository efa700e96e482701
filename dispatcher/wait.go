package dispatcher

import "time"

// wait is how long n deliveries would take to start, going by how the endpoint has been.
func (s *lanes) wait(l *lane, n int, now time.Time) time.Duration {
	limit := l.pace.limit(l.ep.maxInFlight())
	if !l.pace.steady {
		limit = l.ep.maxInFlight() // it has not failed: it gets there within a few rounds
	}
	wait := seconds(float64(n) * s.expected(l, now).Seconds() / float64(limit))
	if l.bucket != nil {
		short := float64(n) - l.bucket.TokensAt(now)
		wait = max(wait, seconds(short/float64(l.bucket.Limit())))
	}
	return wait
}

// expected is what the lane's next attempts must be expected to take.
func (s *lanes) expected(l *lane, now time.Time) time.Duration {
	each := l.pace.usual
	if s.starved.now(now) {
		each = l.pace.least
	}
	if each == 0 {
		each = unknownUsual
	}
	// What an attempt has been open for counts when it is long. A fraction of
	// LaneTime is not: a moment in which this process stands still would put every
	// busy lane on hold.
	if open := l.oldest(now); open > max(l.pace.slow(), s.cfg.LaneTime/5) {
		each = max(each, open)
	}
	return each
}

// unknownUsual is what an attempt of an endpoint is taken to last that has not
// answered yet.
const unknownUsual = 20 * time.Millisecond

// tenantWait is how long the last of a tenant's deliveries would wait for its bounds.
func (s *lanes) tenantWait(l *lane, now time.Time) time.Duration {
	t := l.tenant
	if t.name == "" {
		return 0
	}
	wait := time.Duration(0)
	if s.cfg.TenantShare < 1 {
		wait = seconds(float64(t.queued) * s.expected(l, now).Seconds() / float64(s.tenantMost()))
	}
	if t.bucket != nil {
		wait = max(wait, seconds((float64(t.queued)-t.bucket.TokensAt(now))/s.cfg.TenantRate))
	}
	return wait
}

// seconds is a wait of so many, 30 years at most: a rate of one in ten thousand years is
// a slip, and must not turn into a wait that is over.
func seconds(n float64) time.Duration {
	return time.Duration(min(n, 1e9) * float64(time.Second))
}
