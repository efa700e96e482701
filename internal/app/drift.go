package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/milena-project/milena/internal/kafka"
)

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
