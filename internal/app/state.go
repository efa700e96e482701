package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/metrics"
)

// state is what the process is now, for a scrape.
func (a *App) state() metrics.State {
	st := metrics.State{
		Owned: map[string]int{}, Ready: a.Ready() == nil, Blocked: a.writer.BlockedSince(),
		Endpoints: a.follower.Len(), Registry: a.follower.Current(),
	}
	for _, r := range a.loops {
		f := r.loop.Figures()
		st.Owned[r.name] = f.Partitions
		st.MetadataUsed = max(st.MetadataUsed, f.MetadataUsed)
		if r.name == RoleReleaser {
			continue // what stands in a tier waits for its time: OnBacklog
		}
		for _, t := range f.Topics {
			st.Topics = append(st.Topics, metrics.TopicState(t))
		}
	}
	if a.dispatch != nil {
		st.Dispatcher = a.dispatcherState()
	}
	return st
}

func (a *App) dispatcherState() *metrics.DispatcherState {
	load := a.dispatch.Load()
	st := &metrics.DispatcherState{
		InFlight: load.InFlight, Queued: load.Queued, QueuedBytes: load.Bytes, Held: load.Held, OldestHeld: load.OldestHeld,
		Failing: load.Failing, CutOff: load.CutOff, Lanes: map[string]int{}, Breakers: map[string]int{},
	}
	for activity, n := range load.Activities {
		st.Lanes[string(activity)] = n
	}
	for state, n := range load.Breakers {
		st.Breakers[string(state)] = n
	}
	for _, w := range load.Worst {
		st.Worst = append(st.Worst, metrics.WorstEndpoint{ID: w.Endpoint, Why: w.Why, Records: w.Waiting, Since: w.Since})
	}
	return st
}

// The topics are compared with what they must be so often, and with a pause between two
// times where records ask for it.
const (
	driftEvery = time.Minute
	driftPause = 5 * time.Second
)

// watchDrift counts the differences between the topics and what they must be, until
// ctx ends: somebody may change them while we run. It returns an error when the
// number of partitions is not what it was: then an endpoint's records are not where
// its owner is, and the process must end.
func (a *App) watchDrift(ctx context.Context) error {
	tick := time.NewTicker(driftEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-a.changing:
		}
		if err := a.lookForDrift(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(driftPause):
		}
	}
}

// misrouted counts a record that was found in another partition than its endpoint's. One
// that was forwarded before shows that two processes do not agree on the count of
// partitions, and the topics are looked at without waiting for the next time.
func (a *App) misrouted(again bool) {
	a.metrics.Misrouted()
	if !again {
		return
	}
	select {
	case a.changing <- struct{}{}:
	default:
	}
}

func (a *App) lookForDrift(ctx context.Context) error {
	err := a.checkTopics(ctx)
	var differs *kafka.CheckError
	switch {
	case err == nil:
		a.metrics.Drift(0)
	case errors.As(err, &differs):
		a.metrics.Drift(len(differs.Differences))
		if slices.ContainsFunc(differs.Differences, func(d kafka.Difference) bool { return d.Kind == kafka.KindPartitions }) {
			return fmt.Errorf("the number of partitions has changed while this process runs; stop all milena processes, raise all topics, start again: %w", err)
		}
		a.log.Warn("topics are not as they must be", "differences", len(differs.Differences), "err", err)
	}
	return nil
}
