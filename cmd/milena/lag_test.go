package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/lag"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestLagFromTheCommandLine(t *testing.T) {
	fake, env := cluster(t)
	names := schemas.Names{Prefix: schemas.DefaultPrefix}
	if res := run(t, "", env, "lag", "--max-age", "1m"); res.code != exitDone || !strings.Contains(res.out, "NO MEMBERS") {
		t.Errorf("nothing to do: %+v", res)
	}
	for line := range strings.Lines(must(t, env, "lag")) {
		if len(strings.TrimRight(line, "\n")) > 80 {
			t.Errorf("too wide for a terminal: %s", line)
		}
	}
	cl := fake.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	testkit.Produce(t, cl, &kgo.Record{Topic: names.Deliveries(), Partition: 3, Key: []byte("e"), Value: []byte("{}"), Timestamp: time.Now().Add(-90 * time.Second)})
	res := run(t, "", env, "lag", "--max-age", "1m")
	if res.code != exitFailed || !strings.Contains(res.err, "webhooks.deliveries/3 has been ready for 1m3") || !strings.Contains(res.out, "webhooks.deliveries         1") {
		t.Errorf("exit %d\n%s%s", res.code, res.out, res.err)
	}
	if res := run(t, "", env, "lag", "--max-age", "1h"); res.code != exitDone {
		t.Errorf("%+v", res)
	}
	var rep lag.Report
	if err := json.Unmarshal([]byte(run(t, "", env, "lag", "--json").out), &rep); err != nil || rep.State != lag.NoMembers || rep.Oldest == nil || rep.Oldest.Partition != 3 {
		t.Errorf("%v %+v", err, rep)
	}
	if res := run(t, "", env, "lag", "--watch", "--max-age", "1m"); res.code != exitUsage {
		t.Errorf("%+v", res)
	}
}
