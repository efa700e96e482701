package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/testkit"
)

func TestLeaseCountsFromTheRequestNotFromTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(45*time.Second, slog.Default())
		if l.fresh() {
			t.Error("fresh before the first heartbeat")
		}
		time.Sleep(time.Minute)
		l.OnBrokerE2E(kgo.BrokerMetadata{}, keyHeartbeat, kgo.BrokerE2E{TimeToRead: time.Millisecond})
		if !l.fresh() {
			t.Error("not fresh after a heartbeat")
		}
		time.Sleep(31 * time.Second)
		if l.fresh() {
			t.Error("fresh for longer than two thirds of the session timeout")
		}
		// Frozen for 31 s with the answer in the socket.
		l.OnBrokerE2E(kgo.BrokerMetadata{}, keyHeartbeat, kgo.BrokerE2E{ReadWait: 20 * time.Second, TimeToRead: 11 * time.Second})
		if l.fresh() {
			t.Error("an answer that was read late counts as a fresh one")
		}
		for _, key := range []int16{0, 1, 8, 3} {
			l.OnBrokerE2E(kgo.BrokerMetadata{}, key, kgo.BrokerE2E{})
		}
		l.OnBrokerE2E(kgo.BrokerMetadata{}, keyHeartbeat, kgo.BrokerE2E{ReadErr: errors.New("reset")})
		if l.fresh() {
			t.Error("fresh by a request that is no heartbeat, or had no answer")
		}
		for _, key := range []int16{keyJoinGroup, keySyncGroup} {
			time.Sleep(time.Minute)
			l.OnBrokerE2E(kgo.BrokerMetadata{}, key, kgo.BrokerE2E{})
			if !l.fresh() {
				t.Errorf("not fresh after key %d", key)
			}
		}
		// An older request answered after a younger one takes nothing away.
		l.OnBrokerE2E(kgo.BrokerMetadata{}, keyHeartbeat, kgo.BrokerE2E{TimeToRead: 40 * time.Second})
		if !l.fresh() {
			t.Error("an older heartbeat took the younger one's place")
		}
	})
}

// Its content may be that the group does not know us any more.
func TestTheFirstHeartbeatAfterTheLeaseRanOutRenewsNothing(t *testing.T) {
	for _, key := range []int16{keyHeartbeat, keyConsumerGroupHeartbeat} {
		synctest.Test(t, func(t *testing.T) {
			l := newLease(45*time.Second, slog.Default())
			heartbeat := func(age time.Duration) bool {
				l.OnBrokerE2E(kgo.BrokerMetadata{}, key, kgo.BrokerE2E{ReadWait: age})
				return l.fresh()
			}
			if !heartbeat(0) {
				t.Error("not fresh after the first of all")
			}
			for range 2 {
				time.Sleep(time.Minute)
				if heartbeat(time.Minute) || heartbeat(0) {
					t.Error("fresh by an answer that may say anything")
				}
				time.Sleep(3 * time.Second)
				if !heartbeat(0) {
					t.Error("not fresh after the second")
				}
			}
		})
	}
}

// A suspended machine's monotonic clock stands still: without the wall clock the lease of
// an hour ago would be a fresh one, and requests would begin that are another owner's.
func TestTheLeaseAgesWhileTheMachineIsSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(45*time.Second, slog.New(slog.DiscardHandler))
		heartbeat := func() { l.OnBrokerE2E(kgo.BrokerMetadata{}, keyHeartbeat, kgo.BrokerE2E{}) }
		l.passed(frozenTick, time.Hour) // before it joins there is nothing to age
		time.Sleep(time.Minute)
		heartbeat()
		l.passed(frozenTick, frozenTick-10*time.Second) // the wall clock was set back
		l.passed(frozenTick, 10*time.Second)            // suspended for a moment
		if !l.fresh() {
			t.Error("ten seconds of 30 have passed")
		}
		l.passed(frozenTick, time.Hour)
		if l.fresh() {
			t.Error("it is an hour old")
		}
		heartbeat()
		if l.fresh() {
			t.Error("fresh by an answer that may say anything")
		}
		heartbeat()
		if !l.fresh() {
			t.Error("not fresh after the second heartbeat")
		}
	})
}

func TestPauseDetectorSeesALateTickerAndABigJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(45*time.Second, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		before := time.Now()
		if l.frozenSince(before) {
			t.Error("frozen before the detector runs")
		}
		go l.watchPauses(ctx)
		time.Sleep(time.Minute)
		if l.frozenSince(before) {
			t.Error("a minute of ticks in time counts as a pause")
		}
		cancel()
		synctest.Wait()

		// The process sleeps: the ticker's last look is old, whoever asks first.
		l.looked.Store(int64(time.Since(l.born) - 3*time.Second))
		if !l.frozenSince(time.Now().Add(-5 * time.Second)) {
			t.Error("asked before the ticker fires: not seen")
		}
		// Then the ticker fires and notes the pause.
		l.looked.Store(int64(time.Since(l.born)))
		l.thawed.Store(int64(time.Since(l.born)))
		if !l.frozenSince(time.Now().Add(-time.Second)) || l.frozenSince(time.Now().Add(time.Second)) {
			t.Error("a pause counts for what began before its end, and only for that")
		}
	})
}

// A process that has not joined its group yet is not ready: in a rolling deploy the
// one before it must not be ended for it.
func TestNotReadyBeforeTheGroupHasLetTheMemberIn(t *testing.T) {
	w := newWorld(t, 1)
	var m *member
	var mu sync.Mutex
	var before []error
	w.fake.Observe(keyJoinGroup, func(kmsg.Request) {
		mu.Lock()
		defer mu.Unlock()
		if m != nil {
			before = append(before, m.loop.Ready())
		}
	})
	mu.Lock()
	m = w.join(nil)
	mu.Unlock()
	testkit.Eventually(t, 10*time.Second, func() string {
		if err := m.loop.Ready(); err != nil {
			return err.Error()
		}
		return ""
	})
	m.leave()
	mu.Lock()
	defer mu.Unlock()
	if len(before) == 0 || before[0] == nil {
		t.Errorf("while it asked to join, Ready said %v", before)
	}
}

func TestWithKIP848TheLeaseLastsAsLongAsTheBrokerSays(t *testing.T) {
	w := newWorld(t, 1, testkit.WithKfake(kfake.BrokerConfigs(map[string]string{
		"group.consumer.session.timeout.ms": "30000", "log.retention.ms": "-1",
	})))
	m := w.join(func(c *Config, _ *member) { c.GroupProtocol = ProtocolConsumer })
	testkit.Eventually(t, patience, func() string {
		if got := time.Duration(m.loop.lease.lasts.Load()); got != 20*time.Second {
			return fmt.Sprintf("the lease lasts %s, want two thirds of 30 s", got)
		}
		return ""
	})
	m.leave()
}
