//go:build kafka

package main

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/internal/testkit/realkafka"
)

func TestNothingIsSkippedOrRepeatedUntilInitialOffsetDecides(t *testing.T) {
	c := realkafka.Shared(t)
	s := newSite(t, c.Brokers(), "MILENA_PREFIX=offsets.")
	const topic = "offsets.deliveries"
	s.endpoint(s.admin, "shop")
	send := func(count string) {
		t.Helper()
		s.do(s.admin, "send", "--endpoint", "shop", "--data", "x", "--count", count)
	}

	send("5") // before any process has ever run
	v := s.serve(s.admin)
	v.says(topic+"/", "is not consumed: it has records and the group has no commit for it: 5 records, the oldest there is ",
		"s old; decide with --initial-offset earliest|latest")
	v.end()
	if n := s.receiver.Log.Len(); n != 0 {
		t.Fatalf("%d requests before anyone had decided", n)
	}

	v = s.serve(s.admin, "--initial-offset", "earliest")
	s.received("shop", 5)
	v.says("ready\n")
	v.end()

	send("4") // while nobody runs, and three of them are deleted
	adm := kadm.NewClient(testkit.NewClient(t, c.Brokers()))
	part := kafka.Partition([]byte("shop"), 2)
	ends, err := adm.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, part)
	var to kadm.Offsets
	to.AddOffset(topic, part, end.Offset-1, -1)
	if _, err := adm.DeleteRecords(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	v = s.serve(s.admin)
	v.says("is not consumed: records were deleted before they were consumed: 3 records, the oldest there is ")
	v.end()
	if n := s.receiver.Log.Len(); n != 5 {
		t.Fatalf("%d requests, want the first five alone", n)
	}

	v = s.serve(s.admin, "--initial-offset", "latest") // of a loss it skips nothing that is left
	s.received("shop", 6)
	v.says("ready\n")
	v.end()
	if log := v.logged(); !strings.Contains(log, "records were lost; going on at the oldest there is") || !strings.Contains(log, "lost=3") {
		t.Errorf("the loss is not logged:\n%s", log)
	}

	v = s.serve(s.admin) // what was decided is committed
	v.says("ready\n")
	v.end()
	if n := s.receiver.Log.Len(); n != 6 {
		t.Errorf("%d requests in all, want 6", n)
	}
}
