package app

import (
	"context"
	"sync"
	"time"

	"github.com/milena-project/milena/dlq"
	"github.com/milena-project/milena/internal/consume"
)

// owned are the partitions of deliveries that this process has, and so those of dlq
// whose open letters it counts: together the processes count each partition once.
type owned struct {
	mu   sync.Mutex
	have map[int32]*consume.Assignment // the last assignment of each
}

func (o *owned) add(as *consume.Assignment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.have == nil {
		o.have = map[int32]*consume.Assignment{}
	}
	o.have[as.Partition().Partition] = as
}

// partitions are those that are owned now.
func (o *owned) partitions() (parts []int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, as := range o.have {
		if as.Owned() {
			parts = append(parts, p)
			continue
		}
		if as.Context().Err() != nil {
			delete(o.have, p)
		}
	}
	return parts
}

// firstCount is how long after the start the open letters are counted: the partitions
// are there by then, and a process that restarts in a loop does not read dlq each time.
const firstCount = 10 * time.Second

// countLetters notes what is open in dlq, until ctx ends. It is no part of the work:
// whatever goes wrong is logged and tried again.
func (a *App) countLetters(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(firstCount):
	}
	store, err := dlq.Open(a.kafka)
	if err != nil {
		a.log.Warn("open dead letters are not counted", "err", err)
		return
	}
	defer store.Close()
	store.Watch(ctx, a.owned.partitions, func(f dlq.Figures) {
		if f.Partitions == 0 {
			a.metrics.NoLetters()
			return
		}
		var expires time.Time
		if !f.Oldest.IsZero() && f.Retention > 0 {
			expires = f.Oldest.Add(f.Retention)
		}
		a.metrics.OpenLetters(f.Open, f.Oldest, expires)
	})
}
