package consume

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The requests whose answer shows that the group still counts on us.
const (
	keyJoinGroup              = 11
	keyHeartbeat              = 12
	keySyncGroup              = 14
	keyConsumerGroupHeartbeat = 68
)

const (
	frozenTick = 250 * time.Millisecond // how often the pause detector looks
	frozenLate = time.Second            // how late it must be to have been frozen
)

// lease knows whether this process may still believe that it owns its partitions,
// and whether it slept.
//
// It is a kgo hook: the time of a heartbeat is the time at which the request was
// written, not the one at which its answer was read. Frozen, the two differ:
//
//	(1) heartbeat written, answered by the broker, the answer waits in the socket
//	(2) the process is frozen for a minute; the group gives its partitions away
//	(3) it wakes and reads the answer, a second before it learns the truth
//
// The hook does not see what an answer says. "Unknown member" is followed by a callback,
// and by no other heartbeat, but only some milliseconds later, in which a process that
// has just thawed would begin requests that are somebody else's by now. So the first
// heartbeat that is answered after the lease had run out renews nothing; the second does.
type lease struct {
	born    time.Time
	lasts   atomic.Int64 // ⅔ of the session timeout, in nanoseconds
	log     *slog.Logger
	renewed atomic.Int64 // nanoseconds after born; 0: never
	doubted atomic.Bool  // the lease had run out, and one heartbeat was answered since
	joined  atomic.Bool  // the group has let this member in once
	heard   atomic.Int64 // the same, of any answered request
	looked  atomic.Int64 // the pause detector's last look
	thawed  atomic.Int64 // end of the last pause; 0: none
}

var _ kgo.HookBrokerE2E = (*lease)(nil)

func newLease(sessionTimeout time.Duration, log *slog.Logger) *lease {
	l := &lease{born: time.Now(), log: log}
	l.setSession(sessionTimeout)
	return l
}

// setSession says how long the group waits for a heartbeat.
func (l *lease) setSession(timeout time.Duration) { l.lasts.Store(int64(timeout * 2 / 3)) }

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (l *lease) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if e2e.Err() != nil {
		return
	}
	now := time.Since(l.born)
	asked := int64(max(1, now-e2e.DurationE2E()))
	raise(&l.heard, asked)
	if key == keySyncGroup || key == keyConsumerGroupHeartbeat {
		l.joined.Store(true)
	}
	switch key {
	case keyHeartbeat, keyConsumerGroupHeartbeat:
		young := int64(now)-asked < l.lasts.Load()
		if young && l.renewed.Load() != 0 && !l.fresh() && !l.doubted.Swap(true) {
			return
		}
	case keyJoinGroup, keySyncGroup: // kgo has told what was lost before it joins
	default:
		return
	}
	if raise(&l.renewed, asked); l.fresh() {
		l.doubted.Store(false)
	}
}

// fresh reports whether the last answered heartbeat is young enough for a new POST.
func (l *lease) fresh() bool {
	at := l.renewed.Load()
	return at != 0 && int64(time.Since(l.born))-at < l.lasts.Load()
}

// silence is how long ago the last request was written that a broker answered; the
// age of the lease when none was.
func (l *lease) silence() time.Duration {
	return time.Since(l.born) - time.Duration(l.heard.Load())
}

// frozenSince reports whether this process slept at any moment after start. It
// looks at the detector's own lateness too:
//
//	(1) the process wakes from a pause
//	(2) the goroutine of a request that timed out meanwhile runs first
//	(3) it asks; the detector's ticker has not fired yet
func (l *lease) frozenSince(start time.Time) bool {
	if l.thawed.Load() > int64(start.Sub(l.born)) {
		return true
	}
	looked := l.looked.Load()
	return looked != 0 && time.Since(l.born)-time.Duration(looked) > frozenTick+frozenLate
}

// watchPauses runs the pause detector until ctx ends.
func (l *lease) watchPauses(ctx context.Context) {
	tick := time.NewTicker(frozenTick)
	defer tick.Stop()
	last := time.Now()
	l.looked.Store(int64(last.Sub(l.born)))
	for {
		select {
		case <-ctx.Done():
			l.looked.Store(0)
			return
		case <-tick.C:
		}
		now := time.Now()
		l.passed(now.Sub(last), now.Round(0).Sub(last.Round(0)))
		last = now
		l.looked.Store(int64(now.Sub(l.born)))
	}
}

// passed notes what went by between two looks of the pause detector, by both clocks: the
// monotonic one stops while a virtual machine is suspended, the wall clock does not. The
// lease is told by the monotonic one, so it has aged by what that has missed.
func (l *lease) passed(monotonic, wall time.Duration) {
	late := max(monotonic, wall) - frozenTick
	if late <= frozenLate {
		return
	}
	l.thawed.Store(int64(time.Since(l.born)))
	l.log.Warn("the process was frozen; attempts that overlap the pause do not count", "late", late)
	missed := int64(wall - monotonic)
	for at := l.renewed.Load(); missed > int64(frozenLate) && at != 0; at = l.renewed.Load() {
		if l.renewed.CompareAndSwap(at, at-missed) {
			return
		}
	}
}

// raise stores v where it is greater.
func raise(at *atomic.Int64, v int64) {
	for {
		old := at.Load()
		if v <= old || at.CompareAndSwap(old, v) {
			return
		}
	}
}
