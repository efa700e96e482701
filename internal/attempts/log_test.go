package attempts

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestMain(m *testing.M) { testkit.VerifyMain(m) }

func openLog(t *testing.T) (*testkit.Fake, *Log) {
	t.Helper()
	fake := testkit.NewFake(t, testkit.WithBrokers(1), testkit.WithDataDir(t.TempDir()), testkit.WithTopics(testkit.Topic{Name: "webhooks.attempts", Partitions: 4}))
	l, err := Open(kafka.Config{Brokers: fake.Brokers()}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return fake, l
}

func record(t *testing.T, a schemas.Attempt) *kgo.Record {
	t.Helper()
	value, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return &kgo.Record{Topic: "webhooks.attempts", Partition: kafka.Partition([]byte(a.EndpointID), 4), Key: []byte(a.EndpointID), Value: value}
}

func attempt(endpoint string, n int) schemas.Attempt {
	return schemas.Attempt{DeliveryID: fmt.Sprintf("webhooks.deliveries-00000000-0-%d.%s", n, endpoint), EndpointID: endpoint,
		Outcome: schemas.OutcomeDelivered, Number: 1, Started: noon.Add(time.Duration(n) * time.Second)}
}

// Thousands of records are several chunks, so that reading backwards is seen to
// neither lose nor repeat any at their borders.
func TestLastFindsTheNewestOfMany(t *testing.T) {
	fake, l := openLog(t)
	cl := fake.Client()
	var recs []*kgo.Record
	for n := range 6000 {
		recs = append(recs, record(t, attempt(fmt.Sprintf("ep%d", n%7), n)))
	}
	testkit.Produce(t, cl, recs...)
	ctx := context.Background()
	end, err := l.End(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		f           Filter
		limit, want int
		first       int
		more        bool
	}{
		{Filter{}, 10_000, 6000, 0, false},
		{Filter{}, 50, 50, 5950, true},
		{Filter{Endpoint: "ep3"}, 10_000, 857, 3, false},
		{Filter{Delivery: attempt("ep3", 10).DeliveryID}, 100, 1, 10, false},
		{Filter{Endpoint: "nobody"}, 100, 0, 0, false},
	} {
		got, more, err := l.Last(ctx, c.f, end, c.limit)
		if err != nil || len(got) != c.want || more != c.more {
			t.Errorf("%+v: %d attempts, more %v, %v", c.f, len(got), more, err)
			continue
		}
		if len(got) > 0 && !got[0].Started.Equal(noon.Add(time.Duration(c.first)*time.Second)) {
			t.Errorf("%+v begins at %s", c.f, got[0].Started)
		}
		for i := 1; i < len(got); i++ {
			if !got[i-1].Started.Before(got[i].Started) {
				t.Fatalf("%+v: %s before %s", c.f, got[i-1].DeliveryID, got[i].DeliveryID)
			}
		}
	}
}

func TestFollowMissesNothingAfterItsPosition(t *testing.T) {
	fake, l := openLog(t)
	cl := fake.Client()
	testkit.Produce(t, cl, record(t, attempt("old", 1)))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	end, err := l.End(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const n = 500
	var wait sync.WaitGroup
	wait.Go(func() {
		for i := range n {
			testkit.Produce(t, cl, record(t, attempt(fmt.Sprintf("ep%d", i%5), i)), &kgo.Record{Topic: "webhooks.attempts", Value: []byte("{")})
		}
	})
	seen := map[string]int{}
	err = l.Follow(ctx, Filter{}, end, func(a schemas.Attempt) error {
		seen[a.DeliveryID]++
		if len(seen) == n {
			cancel()
		}
		return nil
	})
	wait.Wait()
	if err != nil || len(seen) != n {
		t.Fatalf("%d of %d, %v", len(seen), n, err)
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("%s was seen %d times", id, times)
		}
	}
}

func TestFollowGoesOnWhenKafkaIsBack(t *testing.T) {
	fake, l := openLog(t)
	end, err := l.End(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	troubled := make(chan struct{})
	var once sync.Once
	l.Trouble = func(error) { once.Do(func() { close(troubled) }) }
	fake.Stop()
	var wait sync.WaitGroup
	wait.Go(func() {
		<-troubled
		fake.Restart()
		testkit.Produce(t, fake.Client(), record(t, attempt("late", 7)))
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	found := ""
	if err := l.Follow(ctx, Filter{}, end, func(a schemas.Attempt) error { found = a.EndpointID; cancel(); return nil }); err != nil {
		t.Fatal(err)
	}
	wait.Wait()
	if found != "late" {
		t.Error(found)
	}
}

// What is looked for is found also where JSON writes it in another way, and nothing
// that only looks like it.
func TestAnyTextIsFound(t *testing.T) {
	fake, l := openLog(t)
	cl := fake.Client()
	subjects := []string{"4711", `say "hi"`, "a/b", "<b>&", "Größe", "tab\there", "back\\slash", "4711x", ""}
	var recs []*kgo.Record
	for i, s := range subjects {
		a := attempt("ep1", i)
		a.Subject, a.EventID = s, "4711" // an event id that looks like a subject
		recs = append(recs, record(t, a))
		b := attempt("ep1", 100+i)
		b.Subject = s
		recs = append(recs, &kgo.Record{Topic: "webhooks.attempts", Key: []byte("ep1"), Value: schemas.AppendAttempt(nil, &b)})
	}
	testkit.Produce(t, cl, recs...)
	end, err := l.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range subjects[:len(subjects)-1] {
		found, _, err := l.Last(t.Context(), Filter{Endpoint: "ep1", Subject: s}, end, 100)
		if err != nil || len(found) != 2 || found[0].Subject != s || found[1].Subject != s {
			t.Errorf("%q: %d found, %v", s, len(found), err)
		}
	}
}

// The index of times goes by the brokers' clock, --since by the attempt's.
func TestABrokerWhoseClockIsBehindHidesNothing(t *testing.T) {
	fake, l := openLog(t)
	one := attempt("ep", 1)
	rec := record(t, one)
	rec.Timestamp = one.Started.Add(-2 * time.Minute)
	testkit.Produce(t, fake.Client(), rec)
	end, err := l.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, _, err := l.Last(t.Context(), Filter{Since: one.Started.Add(-time.Second)}, end, 10)
	if err != nil || len(found) != 1 {
		t.Errorf("%+v %v", found, err)
	}
}
