package registry

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/schemas"
)

// asksAtTheEnd is a reader that wants a barrier while it has read all and shows none
// of it yet.
type asksAtTheEnd struct {
	barrier func() error
	came    chan error
}

func (r *asksAtTheEnd) restart()            {}
func (r *asksAtTheEnd) apply([]*kgo.Record) {}
func (r *asksAtTheEnd) caughtUp() error {
	r.came <- r.barrier()
	return nil
}

func TestABarrierDoesNotPassBeforeWhatWasReadIsShown(t *testing.T) {
	cfg := newConfig(t)
	put(t, newClient(t, cfg), cfg, schemas.Endpoint{ID: "e", EventTypes: []string{"*"}, Version: 1})
	reader := &asksAtTheEnd{came: make(chan error, 1)}
	tail := newTail(cfg.WithDefaults(), cfg.Names.Endpoints(), reader)
	reader.barrier = func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		return tail.barrier(ctx)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tail.run(ctx) }()
	if err := <-reader.came; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the barrier came to %v", err)
	}
	if err := tail.barrier(ctx); err != nil {
		t.Errorf("and once it is shown to %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What is committed may stand at the successor of the leader that answers.
func TestABarrierDoesNotPassOnTheWordOfALeaderThatWasReplaced(t *testing.T) {
	c, cfg := newCluster(t, kfake.NumBrokers(3))
	put(t, newClient(t, cfg), cfg, schemas.Endpoint{ID: "e", EventTypes: []string{"*"}, Version: 1})
	f := follow(t, cfg, ringOf(t, "a"), FollowerOptions{})
	topic := cfg.Names.Endpoints()
	if err := c.MoveTopicPartition(topic, 0, (c.LeaderFor(topic, 0)+1)%3); err != nil {
		t.Fatal(err)
	}
	c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		part := kmsg.NewListOffsetsResponseTopicPartition()
		part.Offset, part.LeaderEpoch = 1, 0
		answer := kmsg.NewListOffsetsResponseTopic()
		answer.Topic = req.(*kmsg.ListOffsetsRequest).Topics[0].Topic
		answer.Partitions = append(answer.Partitions, part)
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		resp.Topics = append(resp.Topics, answer)
		return resp, nil, true
	})
	if err := f.Barrier(t.Context()); !errors.Is(err, kerr.FencedLeaderEpoch) {
		t.Errorf("the barrier came to %v", err)
	}
}
