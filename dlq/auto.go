package dlq

import (
	"context"
	"time"
)

// The automatic rate gives live deliveries priority: replayed letters stand in the
// same partitions as they do, so what a replay can do for them is to keep the queue
// short. It is looked at once a second: how old is the oldest record that the
// dispatchers have not settled?
const (
	AutoStart = 100.0    // letters a second that an automatic rate begins with
	autoMost  = 50_000.0 //
	autoLeast = 1.0
	autoYoung = 2 * time.Second // up to this age the rate grows by a quarter a second
	autoOld   = 5 * time.Second // from this age on it is halved each second
)

func (r *runner) adapts(ctx context.Context) {
	for range ticks(ctx, time.Second) {
		age, err := r.store.oldestReady(ctx)
		if err != nil {
			// Not knowing is no reason to press on.
			age = autoOld
			if ctx.Err() == nil {
				r.store.log.Warn("the age of live deliveries is not known, slowing down", "run", r.run.ID, "err", err)
			}
		}
		r.pace.set(adapted(r.pace.limit(), age))
	}
}

func adapted(now float64, age time.Duration) float64 {
	switch {
	case age >= autoOld:
		return max(autoLeast, now/2)
	case age <= autoYoung:
		return min(autoMost, now*1.25)
	}
	return now
}

// oldestReady is the age of the oldest record of deliveries above the dispatchers'
// commits; 0 if there is none.
func (s *Store) oldestReady(ctx context.Context) (time.Duration, error) {
	topic := s.names.Deliveries()
	ends, err := s.reader.Ends(ctx, topic)
	if err != nil {
		return 0, explain(err, topic, "Read")
	}
	committed, err := s.commits(ctx, "dispatcher")
	if err != nil {
		return 0, err
	}
	var age time.Duration
	now := time.Now()
	for p, end := range ends {
		at := committed[topic][int32(p)].Offset
		if at >= end {
			continue
		}
		f, err := s.reader.FetchAtOrAfter(ctx, topic, int32(p), at, 1)
		if err != nil {
			return 0, err
		}
		if len(f.Records) > 0 {
			age = max(age, now.Sub(f.Records[0].Timestamp))
		}
	}
	return age, nil
}
