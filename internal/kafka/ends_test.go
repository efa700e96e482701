package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/schemas"
)

// replaced makes the next n questions for the end of t/0, -1: all of them, be answered as
// by a leader that was frozen and does not know of its successor: with the end of then.
func replaced(t *testing.T, c *kfake.Cluster, n int, end int64) {
	t.Helper()
	if err := c.MoveTopicPartition("t", 0, (c.LeaderFor("t", 0)+1)%3); err != nil {
		t.Fatal(err)
	}
	c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked := req.(*kmsg.ListOffsetsRequest)
		if n == 0 || asked.Topics[0].Partitions[0].Timestamp != -1 {
			return nil, nil, false
		}
		n--
		part := kmsg.NewListOffsetsResponseTopicPartition()
		part.Offset, part.LeaderEpoch = end, 0
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = asked.Topics[0].Topic
		topic.Partitions = append(topic.Partitions, part)
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
}

func TestTheEndIsNotTakenFromALeaderThatWasReplaced(t *testing.T) {
	c := newCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "t"))
	fill(t, configFor(c), "t", 0, 20)
	for name, ask := range map[string]func(*Reader, context.Context, string) ([]int64, error){
		"of the log": (*Reader).HighWatermarks, "of what is committed": (*Reader).Ends,
		"where nothing is so young": func(r *Reader, ctx context.Context, topic string) ([]int64, error) {
			return r.After(ctx, topic, time.Now().Add(time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			replaced(t, c, 2, 5)
			if ends, err := ask(newReader(t, configFor(c)), within(t, time.Minute), "t"); err != nil || ends[0] != 20 {
				t.Errorf("%d, %v", ends, err)
			}
		})
	}
	replaced(t, c, -1, 5)
	_, err := newReader(t, configFor(c), WithRetryFor(10*time.Millisecond)).Ends(within(t, time.Minute), "t")
	if !errors.Is(err, kerr.FencedLeaderEpoch) || !strings.Contains(err.Error(), "asking for offsets of t/0: its leader of epoch 0 answered, and there is one of epoch 4") {
		t.Errorf("%v", err)
	}
}

// Its log is the shorter one: what is read of its successor is out of its range, and what
// it believes to be the end is none.
func TestALogIsNotOverWhereALeaderThatWasReplacedEnds(t *testing.T) {
	for name, answers := range map[string]func(c *kfake.Cluster){
		"out of range":       func(c *kfake.Cluster) { fetches(c, 3, kerr.OffsetOutOfRange) },
		"nothing from there": func(c *kfake.Cluster) { emptyFetches(c, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "t"))
			fill(t, configFor(c), "t", 0, 20)
			r := newReader(t, configFor(c))
			replaced(t, c, 1, 5)
			answers(c)
			got := 0
			err := r.ReadForwards(within(t, time.Minute), "t", 0, 5, 20, 1<<20, func(recs []schemas.Record) error {
				got += len(recs)
				return nil
			})
			if err != nil || got != 15 {
				t.Errorf("%d of 15 records, %v", got, err)
			}
		})
	}
}

// A witness that does not answer is not waited for.
func TestWhoLeadsIsAskedOfOthersWhereABrokerIsSilent(t *testing.T) {
	c := newCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "t"))
	fill(t, configFor(c), "t", 0, 20)
	r := newReader(t, configFor(c))
	if _, err := r.Ends(within(t, time.Minute), "t"); err != nil {
		t.Fatal(err)
	}
	replaced(t, c, 0, 0)
	silent := c.LeaderFor("t", 0)
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if c.CurrentNode() == silent {
			return nil, errors.New("it hangs up"), true
		}
		return nil, nil, false
	})
	epochs, err := leaderEpochs(within(t, time.Minute), r.cl, []string{"t"})
	if err != nil || epochs["t"][0] != 1 {
		t.Errorf("%v, %v", epochs, err)
	}
}

// Whoever says which broker leads does not know yet that it is dead.
func TestOffsetsAreAskedForAgainWhereALeaderIsDead(t *testing.T) {
	c := newCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "t"))
	fill(t, configFor(c), "t", 0, 20)
	dead := c.ListenAddrs()[c.LeaderFor("t", 0)]
	var refuse atomic.Int32 // so many dials
	cfg := configFor(c)
	cfg.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == dead && refuse.Add(-1) >= 0 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	cfg.Brokers = []string{c.ListenAddrs()[(c.LeaderFor("t", 0)+1)%3]}
	refuse.Store(10)
	if ends, err := newReader(t, cfg).Ends(within(t, time.Minute), "t"); err != nil || ends[0] != 20 {
		t.Errorf("%d, %v", ends, err)
	}
	refuse.Store(1000)
	_, err := newReader(t, cfg, WithRetryFor(10*time.Millisecond)).Ends(within(t, time.Minute), "t")
	if want := fmt.Sprintf("asking for offsets of t: broker %d, which leads a partition, does not answer: ", c.LeaderFor("t", 0)); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v", err)
	}
}
