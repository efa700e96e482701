package consume

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/milena-project/milena/schemas"
)

// BenchmarkLoop is the whole way of a record through this package: fetched from the
// embedded broker, handed over, done, committed.
func BenchmarkLoop(b *testing.B) {
	const partitions, each = 4, 50_000
	w := newWorld(b, partitions)
	for p := range int32(partitions) {
		w.produce(p, each)
	}
	group := 0
	for b.Loop() {
		group++
		var left atomic.Int64
		left.Store(partitions * each)
		all := make(chan struct{})
		m := w.join(func(c *Config, _ *member) {
			c.Group = fmt.Sprintf("%s-%d", testGroup, group)
			c.Start = func(a *Assignment) Intake { return &countingIntake{a, &left, all} }
		})
		<-all
		m.leave()
	}
	b.ReportMetric(float64(b.N)*partitions*each/b.Elapsed().Seconds(), "records/s")
}

type countingIntake struct {
	a    *Assignment
	left *atomic.Int64
	all  chan struct{}
}

func (i *countingIntake) Take(_ context.Context, recs []schemas.Record) {
	for _, r := range recs {
		i.a.Done(r.Offset)
	}
	if i.left.Add(-int64(len(recs))) == 0 {
		close(i.all)
	}
}

func (*countingIntake) Drain(context.Context) {}
