package registry

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// FollowerOptions are the optional settings of a Follower.
type FollowerOptions struct {
	// MaxAge is the installation's retry.max_age, default schemas.DefaultMaxAge. What
	// may still wait for a deleted endpoint is kept schemas.KeptBeyondMaxAge longer, and
	// for so long Endpoint knows it.
	MaxAge time.Duration
}

// Follower is a process's view of all endpoints. Methods are safe for concurrent
// use; before the topic has been read once there are no endpoints.
type Follower struct {
	ring atomic.Pointer[KeyRing]
	opts FollowerOptions
	log  *slog.Logger
	tail *tail

	shown   atomic.Pointer[view] // what readers see
	loading *view                // reader's goroutine: what is being built; the same as shown once it is complete
	swept   time.Time
	// complete: one reading has come to its end. Reader's goroutine.
	complete bool
}

// NewFollower makes a follower of the endpoints topic; Run starts it. A nil ring is
// for processes that never sign, and makes Run refuse if there are secrets.
func NewFollower(cfg kafka.Config, ring *KeyRing, opts FollowerOptions) *Follower {
	if opts.MaxAge <= 0 {
		opts.MaxAge = schemas.DefaultMaxAge
	}
	cfg = cfg.WithDefaults()
	f := &Follower{opts: opts}
	f.ring.Store(ring)
	f.tail = newTail(cfg, cfg.Names.Endpoints(), f)
	f.log = f.tail.log
	f.shown.Store(newView())
	return f
}

// Run follows until ctx ends and then returns nil. It returns a *MissingKeyError
// when, at the end of the first reading, the key ring lacks the key of a live
// secret. Whatever goes wrong with Kafka is tried again for ever and shows in Ready.
func (f *Follower) Run(ctx context.Context) error { return f.tail.run(ctx) }

// Ready is nil while the view can be trusted: read to the end once, a broker has
// answered within the last 10 s, and every live secret can be opened.
func (f *Follower) Ready() error {
	if err := f.tail.ready(); err != nil {
		return err
	}
	return f.shown.Load().missingKey(f.ring.Load())
}

// Barrier returns nil once the view holds everything that was committed before the
// call. Concurrent callers share a question to the broker. On an error nothing is
// known, and the caller waits or holds; ctx should bound it.
func (f *Follower) Barrier(ctx context.Context) error { return f.tail.barrier(ctx) }

// Endpoint finds an endpoint by its id, in any state: a deleted one is known for
// as long as FollowerOptions say. What it returns is never changed; a later version is another Endpoint.
func (f *Follower) Endpoint(id string) (*Endpoint, bool) { return f.shown.Load().get(id) }

// Match returns the endpoints of a tenant that subscribe to an event type, in the
// order of their ids, each once. An event without tenant matches endpoints without
// tenant only. Disabled endpoints are among them, so that what arrives meanwhile
// becomes a dead letter that can be replayed; deleted ones are not.
func (f *Follower) Match(tenant, eventType string) []*Endpoint {
	return f.shown.Load().match(tenant, eventType)
}

// LongestTimeout is the longest total deadline of an attempt that an endpoint has
// which is not deleted; one that says none has byDefault, and so has no endpoint at
// all. It looks at every endpoint: for the start of a process, not for each delivery.
func (f *Follower) LongestTimeout(byDefault time.Duration) time.Duration {
	return f.shown.Load().longestTimeout(byDefault)
}

// Len is the number of endpoints that are not deleted.
func (f *Follower) Len() int { return f.shown.Load().len() }

// Current is as of when the view holds all that was committed: when a broker last
// told how far the topic goes and the view had it. Zero before the first reading.
func (f *Follower) Current() time.Time { return f.tail.current() }

// SetKeyRing replaces the key ring, as ParseKeyRing reads it. It is refused where it
// lacks the key of a live secret: what could be opened before can be opened after.
func (f *Follower) SetKeyRing(text string) error {
	ring, err := ParseKeyRing(text)
	if err != nil {
		return err
	}
	if err := f.shown.Load().missingKey(ring); err != nil {
		return err
	}
	if err := f.shown.Load().wrongKey(ring); err != nil {
		return err
	}
	f.ring.Store(ring)
	return nil
}

// OpenSecret opens a sealed text of an endpoint; see KeyRing.Open. Opening costs
// about a microsecond; callers may keep the result for as long as they keep the Endpoint.
func (f *Follower) OpenSecret(endpointID, sealed string) (string, error) {
	return f.ring.Load().Open(endpointID, sealed)
}

// restart implements reader. The old view stays in sight until the new one is complete.
func (f *Follower) restart() { f.loading = newView() }

// apply implements reader.
func (f *Follower) apply(recs []*kgo.Record) {
	for _, rec := range recs {
		f.take(rec)
	}
	if now := time.Now(); now.Sub(f.swept) > time.Minute {
		f.swept = now
		f.loading.forgetDeleted(now)
	}
}

func (f *Follower) take(rec *kgo.Record) {
	if rec.Value == nil {
		f.loading.remove(string(rec.Key))
		return
	}
	ep, err := Row{Key: string(rec.Key), Value: rec.Value, Offset: rec.Offset}.Endpoint()
	if err != nil {
		// What stood there before stays: a record that nobody can read must not
		// take an endpoint away.
		f.log.Error("an endpoint record is unreadable and was skipped", "endpoint_id", string(rec.Key),
			"partition", rec.Partition, "offset", rec.Offset, "err", err)
		return
	}
	if refused := Bound(ep, f.opts.MaxAge); len(refused) > 0 {
		f.log.Warn("an endpoint record says what registration refuses", "endpoint_id", ep.ID,
			"partition", rec.Partition, "offset", rec.Offset, "why", strings.Join(refused, "; "))
	}
	f.loading.put(ep, f.opts.MaxAge+schemas.KeptBeyondMaxAge)
}

// caughtUp implements reader.
func (f *Follower) caughtUp() error {
	f.loading.forgetDeleted(time.Now())
	f.loading.buildIndex()
	f.loading.texts = make(interner) // it has done its work; later changes are few
	first := !f.complete
	f.complete = true
	if err := f.checkKeys(); err != nil {
		if first {
			return err
		}
		f.log.Error("the endpoints need a key that is not here", "err", err)
	}
	f.shown.Store(f.loading)
	f.log.Info("endpoints read", "endpoints", f.loading.len())
	return nil
}

func (f *Follower) checkKeys() error {
	if err := f.loading.missingKey(f.ring.Load()); err != nil {
		return err
	}
	return f.loading.wrongKey(f.ring.Load())
}
