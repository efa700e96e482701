package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Ends asks where the logs of topics end, open transactions included, or how far they are
// committed. A partition whose end nobody can tell now has an error, of which kerr says
// whether it passes; so has one whose leader is one no more (StillLeads).
func Ends(ctx context.Context, cl *kgo.Client, committed bool, topics ...string) (kadm.ListedOffsets, error) {
	adm := kadm.NewClient(cl)
	ask := adm.ListEndOffsets
	if committed {
		ask = adm.ListCommittedOffsets
	}
	ends, err := ask(ctx, topics...)
	if err != nil {
		return ends, err
	}
	return ends, doubt(ctx, cl, ends, topics)
}

// doubt gives an error to those that are ends, told by a leader that is one no more.
func doubt(ctx context.Context, cl *kgo.Client, listed kadm.ListedOffsets, topics []string) error {
	epochs, err := leaderEpochs(ctx, cl, topics)
	if err != nil {
		return err
	}
	for topic, parts := range listed {
		for n, o := range parts {
			if o.Err == nil && o.Timestamp < 0 { // else it is a record's place, and its epoch that of the record
				o.Err = superseded(o.LeaderEpoch, epochs[topic][n])
				parts[n] = o
			}
		}
	}
	return nil
}

// StillLeads fails if another broker leads a partition by now than the one that answered
// a question about its end, with its epoch. A leader that was frozen, or is cut off from
// the others, does not know that it has been replaced. It answers as if nothing had
// happened, with an end below what its successor has acknowledged, and at once: a question
// that was asked while it was frozen waits for it.
//
//	A leads and freezes → B is elected → a write is acknowledged by B → A is asked where
//	the log ends → A wakes up and answers, before it learns of B
//
// So others are asked who leads.
func StillLeads(ctx context.Context, cl *kgo.Client, topic string, partition, epoch int32) error {
	epochs, err := leaderEpochs(ctx, cl, []string{topic})
	if err != nil {
		return err
	}
	return superseded(epoch, epochs[topic][partition])
}

// superseded compares the epoch of who answered with the epoch that others know of;
// where a broker has none it is 0 or less.
func superseded(answered, known int32) error {
	if answered >= 0 && answered < known {
		return fmt.Errorf("its leader of epoch %d answered, and there is one of epoch %d: %w", answered, known, kerr.FencedLeaderEpoch)
	}
	return nil
}

const (
	witnesses   = 2                      // the leader that is doubted may be one of them
	askedAtOnce = witnesses + 1          // one may be silent
	witnessWait = 250 * time.Millisecond // before the next is asked as well
)

// leaderEpochs are the highest leader epochs of topics that brokers know, by partition.
// Two are heard, because one may be the very broker that does not know yet; others are
// asked in the place of those that do not answer. Where there is one broker it has no
// successor.
func leaderEpochs(ctx context.Context, cl *kgo.Client, topics []string) (map[string]map[int32]int32, error) {
	epochs := map[string]map[int32]int32{}
	brokers := cl.DiscoveredBrokers()
	if len(brokers) < witnesses {
		return epochs, nil
	}
	rand.Shuffle(len(brokers), func(i, j int) { brokers[i], brokers[j] = brokers[j], brokers[i] })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of those that are silent
	type answer struct {
		resp *kmsg.MetadataResponse
		err  error
	}
	answers := make(chan answer, len(brokers))
	asked := 0
	ask := func(upTo int) {
		for ; asked < min(upTo, len(brokers)); asked++ {
			b := brokers[asked]
			go func() {
				resp, err := whoLeads(topics).RequestWith(ctx, b)
				answers <- answer{resp, err}
			}()
		}
	}
	ask(askedAtOnce)
	patience := time.NewTicker(witnessWait)
	defer patience.Stop()
	heard, failed := 0, 0
	for heard < witnesses && heard+failed < len(brokers) {
		select {
		case a := <-answers:
			if a.err == nil {
				heard++
				noteEpochs(a.resp, epochs)
				continue
			}
			failed++
			ask(asked + 1)
			if failed == len(brokers) {
				return nil, fmt.Errorf("asking who leads the partitions: %w: %w", kerr.LeaderNotAvailable, a.err)
			}
		case <-patience.C:
			if asked == len(brokers) && heard > 0 {
				return epochs, nil // the others are frozen
			}
			ask(asked + 1)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return epochs, nil
}

func whoLeads(topics []string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, t)
	}
	return req
}

func noteEpochs(resp *kmsg.MetadataResponse, epochs map[string]map[int32]int32) {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil {
			continue
		}
		if epochs[*t.Topic] == nil {
			epochs[*t.Topic] = map[int32]int32{}
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			epochs[*t.Topic][p.Partition] = max(epochs[*t.Topic][p.Partition], p.LeaderEpoch)
		}
	}
}
