package devmode

import (
	"context"
	"fmt"
	"sync"

	"github.com/milena-project/milena/schemas"
)

// goal follows the events of this run to one endpoint, the target: an event has
// arrived when the echo receiver has verified and taken it, or when an own
// receiver has answered it with 2xx.
type goal struct {
	target string
	events int // 0: endless, never reached

	mu      sync.Mutex // guards what follows
	open    map[string]struct{}
	arrived int
	lost    int
	allSent bool
	done    chan struct{}
}

func newGoal(target string, events int) *goal {
	return &goal{target: target, events: events, open: map[string]struct{}{}, done: make(chan struct{})}
}

// expect says that an event is about to be written.
func (g *goal) expect(messageID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[messageID] = struct{}{}
}

// sent says that all events are written.
func (g *goal) sent() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.allSent = true
	g.check()
}

// accepted hears of what the echo receiver has verified and taken.
func (g *goal) accepted(endpoint, messageID string) {
	if endpoint == g.target {
		g.settle(messageID, true)
	}
}

// attempted hears of every attempt. The echo receiver's word counts more than a
// status, so that a delivered one matters only for an own receiver.
func (g *goal) attempted(a *schemas.Attempt) {
	switch {
	case a.EndpointID != g.target:
	case a.Outcome == schemas.OutcomeDead:
		g.settle(a.MessageID, false)
	case a.Outcome == schemas.OutcomeDelivered && g.target == Forward:
		g.settle(a.MessageID, true)
	}
}

func (g *goal) settle(messageID string, arrived bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ours := g.open[messageID]; !ours {
		return // of an earlier run, or settled already
	}
	delete(g.open, messageID)
	if arrived {
		g.arrived++
	} else {
		g.lost++
	}
	g.check()
}

func (g *goal) check() {
	if !g.allSent || len(g.open) > 0 {
		return
	}
	select {
	case <-g.done:
	default:
		close(g.done)
	}
}

// wait reports whether every event is settled; false when ctx ended first.
func (g *goal) wait(ctx context.Context) bool {
	select {
	case <-g.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// reached reports whether every event has arrived with a signature that was right.
func (g *goal) reached(r *Receiver) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.arrived == g.events && r.Count(g.target).Bad == 0
}

func (g *goal) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("%d of %d arrived at endpoint %s, %d died, %d are under way", g.arrived, g.events, g.target, g.lost, len(g.open))
}
