package flowtest

import (
	"fmt"
	"testing"
	"time"
)

func TestEveryRecordBecomesOneSignedWebhook(t *testing.T) {
	f := newFlow(t)
	var ids []string
	for i := range 20 {
		id := fmt.Sprintf("ep%d", i)
		f.endpoint(id)
		ids = append(ids, id)
	}
	f.ready(f.start())
	f.send(100, 1000, ids...)
	c := f.delivered(time.Minute)
	if c.Repeats != 0 {
		t.Errorf("repeats without a reason: %s", c)
	}
	f.settled(10 * time.Second)
}
