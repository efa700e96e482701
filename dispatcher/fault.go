package dispatcher

import (
	"time"

	"github.com/milena-project/milena/schemas"
)

// When most endpoints that were well cannot be reached any more, it is we who are
// cut off: our network, our name server, our proxy. Then nothing is sent but a few
// probes a second, and what was open is interrupted: no attempt is counted and no
// breaker opens. So the failure of an endpoint that was well to be reached is doubted
// for a moment before it is settled: is it the only one?
//
//	the network goes → an attempt cannot connect → it waits → [others are reached: it
//	is the endpoint] [most others are not either: cut off → interrupted → probes →
//	one is answered → everything goes on]

const (
	faultWindow = 10 * time.Second       // what was seen longer ago says nothing
	faultLeast  = 3                      // hosts that cannot be reached; fewer may be chance
	doubtLeast  = 500 * time.Millisecond // from the first failure, before anything is concluded
	doubtMost   = 2 * time.Second        // then it is the endpoint's
	doubtStep   = 100 * time.Millisecond
	probeEvery  = 250 * time.Millisecond // while we are cut off, one attempt
)

// fault is what is known of our own connection to the world. It is guarded by lanes.mu.
type fault struct {
	cutSince time.Time // zero: not cut off
	cutEnded time.Time // when it was over the last time
	probed   time.Time
	probe    *time.Timer

	// While somebody is in doubt, who answers is noted too. A process may have a
	// hundred thousand lanes, so none of this looks at all of them.
	doubted  map[*lane]struct{}   // lanes that were well and could not be reached
	answers  map[string]time.Time // by host, the last answer since there are doubted ones
	doubting time.Time            // when one of them failed last

	counted time.Time // the three below were taken then
	failing int       // hosts that were well and cannot be reached
	reached int       // hosts that have answered since the first of those failed
	first   time.Time
}

// unreached reports whether an attempt came to no connection. A refused address and
// a bad certificate are the endpoint's alone.
func unreached(r *result) bool {
	switch r.class {
	case schemas.ClassConnect, schemas.ClassDNS, schemas.ClassLocal, schemas.ClassProxy:
		return true
	case schemas.ClassTimeout:
		return r.firstByte.IsZero()
	default:
		return false
	}
}

// mayBeOurs reports whether an attempt without an answer says nothing certain about
// its endpoint.
func mayBeOurs(r *result) bool {
	switch r.class {
	case "", schemas.ClassBlockedAddress, schemas.ClassInternal, schemas.ClassCancelled:
		return false
	default:
		return true
	}
}

// ourFault reports whether an attempt failed because we are cut off. It blocks while
// that is in doubt, for doubtMost at most.
func (d *Dispatcher) ourFault(it *item, r *result) bool {
	s := d.lanes
	failed := time.Now()
	for {
		ours, decided := s.suspect(it, r, failed)
		if decided {
			return ours
		}
		if !sleep(d.work, doubtStep) {
			return true
		}
	}
}

// suspect weighs what is known now of an attempt that came to no answer.
func (s *lanes) suspect(it *item, r *result, failed time.Time) (ours, decided bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, now := &s.fault, time.Now()
	if !f.cutSince.IsZero() || f.cutEnded.After(r.started) {
		return true, true
	}
	if !unreached(r) || it.unproven || it.lane.reached.After(failed) {
		return false, true // it was connected, or was not well before, or is reached again
	}
	s.doubt(it.lane, failed)
	s.weigh(now)
	switch {
	case now.Sub(f.first) >= doubtLeast && f.failing >= faultLeast && f.failing > f.reached:
		s.cutOff(now, r)
		return true, true
	case r.class == schemas.ClassLocal || r.class == schemas.ClassProxy:
		return true, true // whatever the others do
	case now.Sub(f.first) >= doubtLeast && f.reached >= f.failing:
		return false, true
	}
	return false, now.Sub(failed) >= doubtMost
}

// doubt notes that a lane which was well could not be reached.
func (s *lanes) doubt(l *lane, failed time.Time) {
	f := &s.fault
	if f.doubted == nil {
		f.doubted, f.answers = map[*lane]struct{}{}, map[string]time.Time{}
	}
	if l.unreached.Before(failed) {
		l.unreached = failed
	}
	f.doubted[l] = struct{}{}
	if f.doubting.Before(failed) {
		f.doubting = failed
	}
}

// weigh counts hosts by what was seen of them last.
func (s *lanes) weigh(now time.Time) {
	f := &s.fault
	if now.Sub(f.counted) < doubtStep/2 {
		return
	}
	f.counted, f.first = now, now
	failing := map[string]bool{}
	for l := range f.doubted {
		if !l.unreached.After(l.reached) || now.Sub(l.unreached) >= faultWindow {
			delete(f.doubted, l)
			continue
		}
		failing[l.host()] = true
		if l.unreached.Before(f.first) {
			f.first = l.unreached
		}
	}
	for host, at := range f.answers {
		if at.After(f.first) {
			delete(failing, host)
		} else {
			delete(f.answers, host)
		}
	}
	f.failing, f.reached = len(failing), len(f.answers)
}

func (l *lane) host() string {
	if l.ep == nil || l.ep.URL == nil {
		return l.id
	}
	return l.ep.URL.Host
}

func (s *lanes) cutOff(now time.Time, r *result) {
	f := &s.fault
	f.cutSince = now
	s.d.Logger.Error("we are cut off: endpoints that were well cannot be reached; nothing is sent but probes, and no attempt is counted",
		"hosts", f.failing, "reached", f.reached, "error_class", r.class, "err", r.text)
	f.probe = time.AfterFunc(probeEvery, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !f.cutSince.IsZero() && !s.closed {
			f.probe.Reset(probeEvery)
			s.pump(time.Now())
		}
	})
}

// silent reports whether nothing may be sent now, because we are cut off and a
// probe was sent a moment ago.
func (s *lanes) silent(now time.Time) bool {
	f := &s.fault
	return !f.cutSince.IsZero() && now.Sub(f.probed) < probeEvery
}

// answered notes that an endpoint was reached. One is enough to go on.
func (s *lanes) answered(l *lane, now time.Time) {
	l.reached = now
	f := &s.fault
	if len(f.doubted) > 0 {
		if now.Sub(f.doubting) < faultWindow {
			f.answers[l.host()] = now
		} else {
			clear(f.doubted)
			clear(f.answers)
		}
	}
	if f.cutSince.IsZero() {
		return
	}
	s.d.Logger.Warn("endpoints can be reached again; sending goes on", "after", now.Sub(f.cutSince))
	f.cutSince, f.cutEnded = time.Time{}, now
	f.probe.Stop()
	for l := range f.doubted {
		l.unreached = time.Time{}
	}
	clear(f.doubted)
	clear(f.answers)
}
