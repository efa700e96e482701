package flowtest

import (
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestInvariant7NoDeliveryIsReceivedBeforeItsNotBefore(t *testing.T) {
	t.Parallel() // most of it is waiting for what is scheduled
	f := newFlow(t)
	ids := f.endpoints(4, schedule(500*time.Millisecond, time.Second))
	for _, id := range ids {
		f.receiver.Script("/"+id, func(_ int, r *testkit.Received) testkit.Answer {
			if n, _ := strconv.Atoi(r.Attempt); n < 3 {
				return testkit.Answer{Status: 503}
			}
			return testkit.Answer{}
		})
	}
	f.endpoint("later")
	f.ready(f.start())
	due := time.Now().Add(2 * time.Second).Truncate(time.Millisecond)
	f.want("later", "/test", "scheduled", []byte("{}"))
	testkit.Produce(t, f.client, f.record("later", "scheduled", []byte("{}"), kgo.RecordHeader{
		Key: schemas.HeaderNotBefore, Value: strconv.AppendInt(nil, due.UnixMilli(), 10),
	}))
	f.send(2, 300, ids...)
	history := f.awaitDelivered(2*len(ids) + 1)
	late := time.Duration(0)
	for _, r := range f.receiver.Log.All() {
		notBefore := due
		if r.Path != "/later" {
			n, err := strconv.Atoi(r.Attempt)
			must(t, err)
			if n == 1 {
				continue
			}
			notBefore = history[r.DeliveryID][n-2].NextTry
		}
		late = max(late, r.At.Sub(notBefore))
		if r.At.Before(notBefore) {
			t.Errorf("attempt %s of %s came %s too early", r.Attempt, r.DeliveryID, notBefore.Sub(r.At))
		}
	}
	t.Logf("the latest came %s after its time", late.Round(time.Millisecond))
	f.once()
}
