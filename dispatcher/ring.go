package dispatcher

import (
	"time"

	"golang.org/x/time/rate"
)

// tenant is one tenant's lanes that may start something, and what the tenant has
// under way.
type tenant struct {
	name     string
	lanes    fifo[*lane]
	inRing   bool
	count    int // lanes of the tenant that exist
	queued   int // deliveries in its lanes
	inFlight int
	bucket   *rate.Limiter // nil: no rate limit
	wake     *time.Timer   // brings it back into the ring when the bucket has a token
}

// ring serves lanes in turn, tenants first: a tenant with a thousand busy
// endpoints gets the same share of starts as a tenant with one.
type ring struct {
	tenants map[string]*tenant
	turn    fifo[*tenant]
}

func (r *ring) tenant(name string) *tenant {
	t := r.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		r.tenants[name] = t
	}
	t.count++
	return t
}

// leave forgets a tenant with its last lane.
func (r *ring) leave(t *tenant) {
	if t.count--; t.count == 0 {
		delete(r.tenants, t.name)
	}
}

// add puts a lane at the end of its tenant's turn.
func (r *ring) add(l *lane) {
	l.place = placeRing
	l.tenant.lanes.push(l)
	r.resume(l.tenant)
}

// resume lets a tenant take its turn again.
func (r *ring) resume(t *tenant) {
	if !t.inRing && t.lanes.len() > 0 {
		t.inRing = true
		r.turn.push(t)
	}
}

// take removes the lane whose turn it is. A tenant that may not start anything
// leaves the ring, until resume.
func (r *ring) take(may func(*tenant) bool) *lane {
	for {
		t, ok := r.turn.pop()
		if !ok {
			return nil
		}
		t.inRing = false
		if t.lanes.len() == 0 || !may(t) {
			continue
		}
		l, _ := t.lanes.pop()
		r.resume(t)
		l.place = placeNone
		return l
	}
}

// tenantMost is how many attempts of one tenant may be in flight.
func (s *lanes) tenantMost() int { return max(1, int(s.cfg.TenantShare*float64(s.cfg.MaxInFlight))) }

// tenantMay reports whether a tenant may begin an attempt now. Where it may not, the
// end of one of its attempts or the next token brings it back.
func (s *lanes) tenantMay(t *tenant, now time.Time) bool {
	if t.name == "" {
		return true
	}
	if t.inFlight >= s.tenantMost() {
		return false
	}
	if s.cfg.TenantRate <= 0 {
		return true
	}
	if t.bucket == nil {
		// Empty: whoever owned its endpoints before may have spent it.
		burst := max(1, int(s.cfg.TenantRate))
		t.bucket = rate.NewLimiter(rate.Limit(s.cfg.TenantRate), burst)
		t.bucket.AllowN(now, burst)
	}
	have := t.bucket.TokensAt(now)
	if have >= 1 {
		return true
	}
	after := seconds((1-have)/s.cfg.TenantRate) + time.Millisecond
	if t.wake != nil {
		t.wake.Reset(after)
		return false
	}
	t.wake = time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ring.resume(t)
		s.pump(time.Now())
	})
	return false
}

func (s *lanes) tenantStarts(t *tenant, now time.Time) {
	t.inFlight++
	if t.bucket != nil {
		t.bucket.AllowN(now, 1)
	}
}

func (s *lanes) tenantEnds(t *tenant) {
	t.inFlight--
	s.ring.resume(t)
}
