//go:build kafka

package realkafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/testkit"
)

// What the other chaos tests stand on: with three brokers and acks=all nothing
// acknowledged is lost while one broker at a time crashes, freezes or restarts,
// so that a loss which they see is Milena's.
func TestSoakNothingAcknowledgedIsLostWhileBrokersCrash(t *testing.T) {
	budget, rng := testkit.SoakBudget(t), testkit.Rand(t)
	c := Start(t, Config{Brokers: 3})
	cl := testkit.NewClient(t, c.Brokers())
	createTopic(t, c, "soak", 3)

	ctx, stop := context.WithTimeout(t.Context(), budget)
	defer stop()
	var faults int
	var chaos sync.WaitGroup
	chaos.Go(func() { faults = oneBrokerAtATime(ctx, t, c, rng) })

	acked := 0
	for ctx.Err() == nil {
		batch := make([]*kgo.Record, 100)
		for i := range batch {
			batch[i] = &kgo.Record{Topic: "soak", Key: fmt.Append(nil, acked+i), Value: []byte("v")}
		}
		testkit.Produce(t, cl, batch...)
		acked += len(batch)
	}
	chaos.Wait()
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}

	reader := testkit.NewClient(t, c.Brokers(), kgo.ConsumeTopics("soak"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	seen := make(map[string]bool, acked)
	until := within(t, 2*time.Minute)
	for len(seen) < acked && until.Err() == nil {
		reader.PollFetches(until).EachRecord(func(r *kgo.Record) { seen[string(r.Key)] = true })
	}
	t.Logf("%d records acknowledged over %d faults, %d read back", acked, faults, len(seen))
	if len(seen) != acked {
		t.Errorf("%d acknowledged records are lost", acked-len(seen))
	}
}

// oneBrokerAtATime makes faults until ctx ends, and leaves all brokers running.
func oneBrokerAtATime(ctx context.Context, t *testing.T, c *Cluster, rng *rand.Rand) (faults int) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	wait := func(d time.Duration) {
		pause.Reset(d)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	for ; ctx.Err() == nil; faults++ {
		wait(time.Second + upTo(rng, 4*time.Second))
		i := rng.IntN(3)
		var err error
		switch rng.IntN(3) {
		case 0:
			if err = c.Kill(i); err == nil {
				wait(upTo(rng, 3*time.Second))
				err = c.Restart(t.Context(), i)
			}
		case 1:
			if err = c.Freeze(i); err == nil {
				wait(upTo(rng, 12*time.Second))
				err = c.Thaw(i)
			}
		default:
			err = c.Restart(t.Context(), i)
		}
		if err == nil {
			err = c.WaitReady(t.Context())
		}
		if err != nil {
			t.Errorf("fault %d at broker %d: %v", faults, i, err)
			return faults
		}
	}
	return faults
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
