package app

import "github.com/milena-project/milena/internal/metrics"

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
		st.Dispatcher.Owns = st.Owned[RoleDispatcher] > 0
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
