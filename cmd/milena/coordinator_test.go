package main

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A new cluster has no coordinator until somebody has asked for one, and the first
// command that anyone runs there is one that asks.
func TestAGroupWithoutACoordinatorIsAskedForAgain(t *testing.T) {
	fake, env := cluster(t)
	var refused atomic.Bool
	fake.ControlKey(int16(kmsg.FindCoordinator), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if refused.Swap(true) {
			return nil, nil, false
		}
		find := req.(*kmsg.FindCoordinatorRequest)
		resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
		resp.ErrorCode = kerr.CoordinatorNotAvailable.Code
		for _, key := range find.CoordinatorKeys {
			c := kmsg.NewFindCoordinatorResponseCoordinator()
			c.Key, c.ErrorCode = key, kerr.CoordinatorNotAvailable.Code
			resp.Coordinators = append(resp.Coordinators, c)
		}
		return resp, nil, true
	})
	if res := run(t, "", env, "lag", "--timeout", "1m"); res.code != exitDone || !strings.Contains(res.out, "NO MEMBERS") || !refused.Load() {
		t.Errorf("refused once: %t; %+v", refused.Load(), res)
	}
}
