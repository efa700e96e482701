package devmode

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/milena-project/milena/internal/publish"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

// Source is ce_source of sample events.
const Source = "/milena/dev"

// feedWindow bounds the records that wait for their acknowledgement.
const feedWindow = 1000

// feed sends sample events.
type feed struct {
	dev       *dev
	publisher *publish.Publisher
	follower  *registry.Follower // nil with ForwardTo

	window chan struct{}
	wait   sync.WaitGroup
	mu     sync.Mutex // guards err
	err    error      // the first one
}

// run returns when all events are sent and acknowledged, ctx ends (nil), or a
// record was refused.
func (f *feed) run(ctx context.Context) error {
	f.window = make(chan struct{}, feedWindow)
	stop, err := f.follow(ctx)
	if err != nil {
		return ignoreCancelled(ctx, err)
	}
	defer stop()
	limit := rate.NewLimiter(rate.Inf, 1)
	if r := f.dev.cfg.Rate; r > 0 {
		limit = rate.NewLimiter(rate.Limit(r), 1)
	}
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number will do
	for n := 0; f.dev.cfg.Events == 0 || n < f.dev.cfg.Events; n++ {
		if limit.Wait(ctx) != nil || f.failed() != nil {
			break
		}
		if !f.send(ctx, f.dev.prefix+strconv.Itoa(n), NewSample(n, seed, time.Now())) {
			break
		}
	}
	f.wait.Wait()
	if ctx.Err() == nil {
		f.dev.goal.sent()
	}
	return f.failed()
}

// send writes one event for each endpoint that wants it; false when ctx ended.
func (f *feed) send(ctx context.Context, id string, s Sample) bool {
	ev := schemas.Event{ID: id, Source: Source, Type: s.Type, Subject: s.Subject, Time: time.Now().UTC().Format(time.RFC3339Nano),
		ContentType: "application/json", SpecVersion: schemas.DefaultSpecVersion}
	message := schemas.MessageID(ev.Source, ev.ID)
	endpoints := f.subscribers(s.Type)
	f.dev.goal.expect(message)
	wanted := false
	for _, endpoint := range endpoints {
		select {
		case f.window <- struct{}{}:
		case <-ctx.Done():
			return false
		}
		wanted = wanted || endpoint == f.dev.goal.target
		f.wait.Add(1)
		f.publisher.Start(ev, s.Data, endpoint, func(_ publish.Sent, err error) {
			f.note(err)
			<-f.window
			f.wait.Done()
		})
	}
	if !wanted {
		f.dev.goal.settle(message, false) // deleted, or it no longer subscribes
	}
	f.dev.show.sent(len(endpoints))
	return true
}

func (f *feed) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *feed) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// subscribers are the endpoints that want an event: also those that were
// registered from another shell.
func (f *feed) subscribers(eventType string) []string {
	if f.follower == nil {
		return []string{Forward}
	}
	var ids []string
	for _, ep := range f.follower.Match("", eventType) {
		if ep.ID != Forward { // of an earlier run, whose receiver may be gone
			ids = append(ids, ep.ID)
		}
	}
	return ids
}

// follow starts to follow the registry, and returns when it is caught up.
func (f *feed) follow(ctx context.Context) (stop func(), err error) {
	if f.dev.cfg.ForwardTo != "" {
		return func() {}, nil
	}
	ring, err := registry.ParseKeyRing(f.dev.loaded.Keyring)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	f.follower = registry.NewFollower(f.dev.kafka, ring, registry.FollowerOptions{})
	ended := make(chan error, 1)
	go func() { ended <- f.follower.Run(ctx) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for f.follower.Ready() != nil {
		select {
		case err := <-ended:
			cancel()
			return nil, errors.Join(err, ctx.Err())
		case <-tick.C:
		}
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			f.note(err)
		}
	}, nil
}
