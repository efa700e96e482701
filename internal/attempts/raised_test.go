package attempts

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// raise gives the log three partitions more, as docs/operations.md tells to, and returns
// it as a process that is started after it sees it.
func raise(t *testing.T, fake *testkit.Fake) *Log {
	t.Helper()
	resp, err := kadm.NewClient(fake.Client()).CreatePartitions(t.Context(), 3, "webhooks.attempts")
	if err != nil || resp.Error() != nil {
		t.Fatal(err, resp.Error())
	}
	l, err := Open(kafka.Config{Brokers: fake.Brokers()}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// exact is a client that writes each record to the partition that it names.
func exact(t *testing.T, fake *testkit.Fake) *kgo.Client {
	return testkit.NewClient(t, fake.Brokers(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

func at(rec *kgo.Record, partition int32, when time.Time) *kgo.Record {
	rec.Partition, rec.Timestamp = partition, when
	return rec
}

func TestAttemptsFromBeforeThePartitionsWereRaisedAreTheirEndpointsStill(t *testing.T) {
	fake, l := openLog(t)
	var all []schemas.Attempt
	write := func(from, to int, began time.Time, partitions int32) {
		var recs []*kgo.Record
		for n := from; n < to; n++ {
			a := attempt(fmt.Sprintf("ep%d", n%6), n)
			a.Number, a.Started = 2, began.Add(time.Duration(n)*time.Second) // of none the first attempt is there
			recs = append(recs, at(record(t, a), kafka.Partition([]byte(a.EndpointID), partitions), a.Started))
			all = append(all, a)
		}
		testkit.Produce(t, exact(t, fake), recs...)
	}
	write(0, 54, noon, 4)
	before, err := l.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l = raise(t, fake)
	write(54, 78, noon.Add(time.Hour), 7)
	end, err := l.End(t.Context())
	if err != nil || len(before) != 4 || len(end) != 7 {
		t.Fatal(before, end, err)
	}
	for i := range 6 {
		id := fmt.Sprintf("ep%d", i)
		for _, f := range []Filter{{Endpoint: id}, {Endpoint: id, Since: noon.Add(30 * time.Second)}, {Endpoint: id, Since: noon.Add(time.Hour)},
			{Delivery: attempt(id, i).DeliveryID}, {Delivery: attempt(id, 54+i).DeliveryID}} {
			var want []schemas.Attempt
			for _, a := range all {
				if f.Match(&a) {
					want = append(want, a)
				}
			}
			for _, limit := range []int{1, 3, 4, 6, 13, 100} {
				least := want[max(0, len(want)-limit):]
				got, more, err := l.Last(t.Context(), f, end, limit)
				if err != nil || len(got) != len(least) || got[0].DeliveryID != least[0].DeliveryID || more != (len(want) > limit) {
					t.Errorf("%+v at most %d: %d attempts, want %d; more %t, %v", f, limit, len(got), len(least), more, err)
				}
			}
		}
		if got, _, err := l.Last(t.Context(), Filter{Endpoint: id}, before, 100); err != nil || len(got) != 9 {
			t.Errorf("%s as of then: %d attempts, %v", id, len(got), err)
		}
	}
}

// Three counts of partitions, of which the first and the last put an endpoint into the
// same one: there its newest stand beside its oldest.
func TestNothingIsLeftOutWhereAnEndpointCameBackToAPartition(t *testing.T) {
	fake, _ := openLog(t)
	l := raise(t, fake)
	id := ""
	for i := 0; id == ""; i++ {
		key := fmt.Appendf(nil, "ep%d", i)
		if home := kafka.Partition(key, 7); home == kafka.Partition(key, 4) && home != kafka.Partition(key, 6) {
			id = string(key)
		}
	}
	cl := exact(t, fake)
	for n, count := range []int32{4, 4, 4, 6, 6, 7} {
		a := attempt(id, n*3600)
		if n >= 2 && n != 4 { // of one delivery in each partition
			a.DeliveryID, a.Number = attempt(id, 2).DeliveryID, n-1
		}
		testkit.Produce(t, cl, at(record(t, a), kafka.Partition([]byte(id), count), a.Started))
	}
	end, err := l.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, more, err := l.Last(t.Context(), Filter{Delivery: attempt(id, 2).DeliveryID}, end, 100); err != nil || more || len(got) != 3 {
		t.Errorf("of the delivery: %+v, more %t, %v", got, more, err)
	}
	got, more, err := l.Last(t.Context(), Filter{Endpoint: id}, end, 3)
	if err != nil || !more || len(got) != 3 || !got[0].Started.Equal(noon.Add(3*time.Hour)) {
		t.Errorf("%+v, more %t, %v", got, more, err)
	}
}

func TestFollowShowsWhatWasWrittenJustBeforeThePartitionsWereRaised(t *testing.T) {
	fake, l := openLog(t)
	end, err := l.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := "ep0"
	for i := 0; kafka.Partition([]byte(id), 4) == kafka.Partition([]byte(id), 7); i++ {
		id = fmt.Sprintf("ep%d", i)
	}
	testkit.Produce(t, exact(t, fake), record(t, attempt(id, 1)))
	l = raise(t, fake)
	testkit.Produce(t, exact(t, fake), at(record(t, attempt(id, 2)), kafka.Partition([]byte(id), 7), noon))
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience*10*time.Second)
	defer cancel()
	seen := 0
	err = l.Follow(ctx, Filter{Endpoint: id}, end, func(schemas.Attempt) error {
		if seen++; seen == 2 {
			cancel()
		}
		return nil
	})
	if err != nil || seen != 2 {
		t.Errorf("%d of 2, %v", seen, err)
	}
}
