package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

func TestFollowerShowsWhatTheTopicSays(t *testing.T) {
	cfg := newConfig(t)
	cl := newClient(t, cfg)
	put(t, cl, cfg, schemas.Endpoint{ID: "a", EventTypes: []string{"order.*"}, Version: 1})
	put(t, cl, cfg, schemas.Endpoint{ID: "b", Tenant: "acme", EventTypes: []string{"*"}, Version: 1})
	produce(t, cl, cfg.Names.Endpoints(), "c", []byte("{not json"))

	f := follow(t, cfg, nil, FollowerOptions{})
	if n := f.Len(); n != 2 {
		t.Fatalf("Len is %d, want 2", n)
	}
	if got := ids(f.Match("", "order.created")); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("without tenant: %v", got)
	}
	if got := ids(f.Match("acme", "order.created")); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("with tenant: %v", got)
	}
	old, _ := f.Endpoint("a")

	put(t, cl, cfg, schemas.Endpoint{ID: "a", EventTypes: []string{"invoice.paid"}, Version: 2})
	put(t, cl, cfg, schemas.Endpoint{ID: "b", Tenant: "acme", State: schemas.StateDeleted, Version: 2, UpdatedAt: time.Now()})
	if err := f.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.Match("", "order.created"); len(got) != 0 {
		t.Fatalf("the old subscription still matches: %v", ids(got))
	}
	if got := ids(f.Match("", "invoice.paid")); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("the new subscription: %v", got)
	}
	if got := f.Match("acme", "order.created"); len(got) != 0 {
		t.Fatalf("a deleted endpoint matches: %v", ids(got))
	}
	if ep, ok := f.Endpoint("b"); !ok || ep.State != schemas.StateDeleted {
		t.Fatalf("a deleted endpoint is to be known: %v %v", ep, ok)
	}
	if old.Version != 1 || old.EventTypes[0] != "order.*" {
		t.Fatalf("an endpoint that was handed out has changed: %+v", old)
	}
}

func TestDeletedEndpointIsForgottenAfterItsTime(t *testing.T) {
	v := newView()
	v.buildIndex()
	now := time.Now()
	v.put(&Endpoint{ID: "a", State: schemas.StateDeleted, UpdatedAt: now}, time.Hour)
	v.forgetDeleted(now.Add(59 * time.Minute))
	if _, ok := v.get("a"); !ok {
		t.Fatal("forgotten too early")
	}
	v.forgetDeleted(now.Add(61 * time.Minute))
	if _, ok := v.get("a"); ok {
		t.Fatal("still known")
	}
}

func TestFollowerRefusesToStartWithoutTheKeyOfALiveSecret(t *testing.T) {
	cfg := newConfig(t)
	cl := newClient(t, cfg)
	ring := ringOf(t, "k2025")
	put(t, cl, cfg, schemas.Endpoint{ID: "a", EventTypes: []string{"*"}, Version: 1,
		Secrets: []schemas.Secret{sealedSecret(t, ring, "a", "whsec_x")}})

	for name, other := range map[string]*KeyRing{"none": nil, "another": ringOf(t, "k2026"), "wrong bytes": ringOf(t, "k2025")} {
		f := NewFollower(cfg, other, FollowerOptions{})
		var missing *MissingKeyError
		if err := f.Run(t.Context()); !errors.As(err, &missing) || missing.KeyID != "k2025" || missing.EndpointID != "a" {
			t.Errorf("%s: Run returned %v", name, err)
		}
		if err := f.Ready(); !errors.As(err, &missing) {
			t.Errorf("%s: Ready returned %v", name, err)
		}
	}
	f := follow(t, cfg, ring, FollowerOptions{})
	ep, _ := f.Endpoint("a")
	if got, err := f.OpenSecret("a", ep.Secrets[0].Sealed); err != nil || got != "whsec_x" {
		t.Fatalf("OpenSecret: %q, %v", got, err)
	}

	// One that comes later makes it not ready, and does not end it.
	put(t, cl, cfg, schemas.Endpoint{ID: "b", EventTypes: []string{"*"}, Version: 1,
		Secrets: []schemas.Secret{sealedSecret(t, ringOf(t, "k2027"), "b", "whsec_y")}})
	if err := f.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	var missing *MissingKeyError
	if err := f.Ready(); !errors.As(err, &missing) || missing.KeyID != "k2027" {
		t.Fatalf("Ready: %v", err)
	}
}

func TestBarrierCoversWhatWasCommittedBeforeIt(t *testing.T) {
	cfg := newConfig(t)
	f := follow(t, cfg, nil, FollowerOptions{})
	var wg sync.WaitGroup
	for g := range 8 {
		cl := newClient(t, cfg)
		wg.Go(func() {
			for i := range 15 {
				id := fmt.Sprintf("e%d-%d", g, i)
				put(t, cl, cfg, schemas.Endpoint{ID: id, EventTypes: []string{"*"}, Version: 1})
				if err := f.Barrier(t.Context()); err != nil {
					t.Error(err)
					return
				}
				if _, ok := f.Endpoint(id); !ok {
					t.Errorf("%s was committed before the barrier and is not known after it", id)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestBarrierPassesTransactionMarkersAndIgnoresWhatIsOpen(t *testing.T) {
	cfg := newConfig(t)
	f := follow(t, cfg, nil, FollowerOptions{})
	txn := newClient(t, cfg, kgo.TransactionalID("someone"), kgo.TransactionTimeout(30*time.Second))
	for i, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		id := fmt.Sprint("t", i)
		if err := txn.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		put(t, txn, cfg, schemas.Endpoint{ID: id, EventTypes: []string{"*"}, Version: 1})
		if err := f.Barrier(t.Context()); err != nil {
			t.Fatalf("while the transaction is open: %v", err)
		}
		if _, ok := f.Endpoint(id); ok {
			t.Fatal("an uncommitted record is in the view")
		}
		if err := txn.EndTransaction(t.Context(), commit); err != nil {
			t.Fatal(err)
		}
		if err := f.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, ok := f.Endpoint(id); ok != (commit == kgo.TryCommit) {
			t.Fatalf("after the end of transaction %d: known is %v", i, ok)
		}
	}
}

func TestConcurrentBarriersShareTheirQuestions(t *testing.T) {
	c, cfg := newCluster(t)
	f := follow(t, cfg, nil, FollowerOptions{})
	var asked, open, most atomic.Int64
	c.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked.Add(1)
		most.Store(max(most.Load(), open.Add(1)))
		open.Add(-1)
		return nil, nil, false
	})
	began := time.Now()
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			for range 5 {
				if err := f.Barrier(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	limit := int64(time.Since(began)/askEvery) + 2
	if n := asked.Load(); n > limit {
		t.Fatalf("1,000 barriers asked %d questions in %s, want at most %d", n, time.Since(began), limit)
	}
}

func TestAnAnswerThatWasOvertakenByTheReaderIsNoLoss(t *testing.T) {
	c, cfg := newCluster(t)
	f := follow(t, cfg, nil, FollowerOptions{})
	cl := newClient(t, cfg)
	put(t, cl, cfg, schemas.Endpoint{ID: "a", EventTypes: []string{"*"}, Version: 1})
	if err := f.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	end := f.tail.position()
	c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		// The end is taken now, and its answer travels until more was written and read.
		c.SleepControl(func() {
			put(t, cl, cfg, schemas.Endpoint{ID: "b", EventTypes: []string{"*"}, Version: 1})
			waitFor(t, "the record to be read", func() bool { return f.tail.position() > end })
		})
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		part := kmsg.NewListOffsetsResponseTopicPartition()
		part.Offset = end
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic, topic.Partitions = cfg.Names.Endpoints(), append(topic.Partitions, part)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	if err := f.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := f.Endpoint("b"); !ok {
		t.Fatal("b was read and is not known: the topic was read again from its start")
	}
}

func TestBarrierFailsAndFollowerIsStaleWhileTheBrokerIsAway(t *testing.T) {
	c, cfg := newCluster(t)
	f := follow(t, cfg, nil, FollowerOptions{})
	c.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, errors.New("the broker is away"), true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := f.Barrier(ctx); err == nil {
		t.Fatal("the barrier passed without an answer")
	}
	if ctx.Err() != nil {
		t.Fatal("the barrier waited for its caller's deadline")
	}
	waitFor(t, "the follower to be stale", func() bool { // unless it hears of the broker in between
		f.tail.mu.Lock()
		f.tail.contact = time.Now().Add(-staleAfter - time.Second)
		f.tail.mu.Unlock()
		return errors.Is(f.Ready(), ErrTimeout)
	})
}

func TestBarrierFailsWhenTheBrokerIsStopped(t *testing.T) {
	c, cfg := newCluster(t)
	f := follow(t, cfg, nil, FollowerOptions{})
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := f.Barrier(ctx); err == nil || ctx.Err() != nil {
		t.Fatalf("Barrier: %v (context: %v)", err, ctx.Err())
	}
}

func TestFollowerRecoversWhenTheTopicIsMadeAgain(t *testing.T) {
	cfg := newConfig(t)
	cl := newClient(t, cfg)
	for i := range 5 {
		put(t, cl, cfg, schemas.Endpoint{ID: fmt.Sprint("old", i), EventTypes: []string{"*"}, Version: 1})
	}
	f := follow(t, cfg, nil, FollowerOptions{})
	adm := kadm.NewClient(cl)
	if _, err := adm.DeleteTopic(t.Context(), cfg.Names.Endpoints()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the follower to notice", func() bool { return f.Ready() != nil })
	if err := f.Barrier(t.Context()); err == nil {
		t.Fatal("a barrier passed without a topic")
	}
	if n := f.Len(); n != 5 {
		t.Fatalf("the last view is to stay in sight, it has %d endpoints", n)
	}
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, cfg.Names.Endpoints()); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Fatal(err)
	}
	testkit.AwaitTopics(t, cfg.Brokers, cfg.Names.Endpoints())
	again := newClient(t, cfg)
	put(t, again, cfg, schemas.Endpoint{ID: "new", EventTypes: []string{"*"}, Version: 1})
	waitFor(t, "the follower to read the new topic", func() bool {
		_, ok := f.Endpoint("new")
		return ok && f.Len() == 1 && f.Ready() == nil
	})
}

func ids(eps []*Endpoint) []string {
	var out []string
	for _, ep := range eps {
		out = append(out, ep.ID)
	}
	return out
}

func TestFollowerGoesOnWhenTheBrokerIsBack(t *testing.T) {
	cfg := kafka.Config{ClientID: "test", Names: schemas.Names{Prefix: schemas.DefaultPrefix}, Logger: testLogger()}
	broker := testkit.NewFake(t, testkit.WithDataDir(""), testkit.WithTopics(
		testkit.Topic{Name: cfg.Names.Endpoints(), Partitions: 1, Configs: map[string]string{"cleanup.policy": "compact"}}))
	cfg.Brokers = broker.Brokers()
	cl := newClient(t, cfg)
	put(t, cl, cfg, schemas.Endpoint{ID: "a", EventTypes: []string{"*"}, Version: 1})
	f := follow(t, cfg, nil, FollowerOptions{})
	f.tail.mu.Lock()
	session := f.tail.session
	f.tail.mu.Unlock()
	for round := range 2 {
		broker.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if err := f.Barrier(ctx); err == nil {
			t.Fatal("a barrier passed without a broker")
		}
		cancel()
		if f.Len() != round+1 {
			t.Fatalf("the view has %d endpoints while the broker is away", f.Len())
		}
		broker.Restart()
		id := fmt.Sprint("b", round)
		put(t, newClient(t, cfg), cfg, schemas.Endpoint{ID: id, EventTypes: []string{"*"}, Version: 1})
		waitFor(t, "a barrier to pass", func() bool { return f.Barrier(t.Context()) == nil })
		if _, ok := f.Endpoint(id); !ok || f.Ready() != nil {
			t.Fatalf("after the barrier the new endpoint is known: %v, ready: %v", ok, f.Ready())
		}
	}
	f.tail.mu.Lock()
	defer f.tail.mu.Unlock()
	if f.tail.session != session {
		t.Error("everything was read again because a broker was away")
	}
}
