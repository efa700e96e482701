//go:build !kafka

package flowtest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/testkit"
)

// The embedded broker can be told to be slow with one reader, so that a router that
// does not ask for the end of the registry has an old view for certain.
func TestAnEventWaitsForARegistrationThatTheRouterHasNotReadYet(t *testing.T) {
	f := newFlow(t)
	orders := f.source("orders")
	slow := f.slowFollower(500 * time.Millisecond)
	f.ready(f.start(routes(orders)))
	slow()
	for i := range int32(3) {
		id := fmt.Sprint("new", i)
		f.endpoint(id, subscribes("shop", "order.paid"+id))
		testkit.Produce(t, f.client, f.happened(orders, i, id, "shop", "order.paid"+id, []byte("{}"), id))
	}
	f.delivered(30 * time.Second)
}

// slowFollower finds the fetch session of whoever reads endpoints until begin is called;
// from then on each fetch of it is answered late. Administration has clients of its own
// and stays quick.
func (f *flow) slowFollower(by time.Duration) (begin func()) {
	cluster := f.cluster.fake.Cluster()
	var mu sync.Mutex
	sessions, begun := map[int32]bool{}, false
	over := make(chan struct{})
	f.t.Cleanup(func() { close(over) })
	f.cluster.fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := r.(*kmsg.FetchRequest)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !begun && req.SessionID > 0 && req.MaxWaitMillis > 250: // consumers wait less
			sessions[req.SessionID] = true
		case begun && sessions[req.SessionID]:
			mu.Unlock()
			cluster.SleepControl(func() {
				select {
				case <-time.After(by):
				case <-over:
				}
			})
			mu.Lock()
		}
		return nil, nil, false
	})
	return func() {
		testkit.Eventually(f.t, 10*time.Second, func() string {
			mu.Lock()
			defer mu.Unlock()
			if begun = len(sessions) > 0; !begun {
				return "nobody reads endpoints"
			}
			return ""
		})
	}
}
