package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// forget makes the client ask again about what it remembers of a topic whose
// writes it gave back with err.
func (w *Writer) forget(topic string, err error) {
	cl := w.client.Load()
	var ke *kerr.Error
	switch {
	case err == nil: // the client was made to forget it (unstick)
	case errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.InvalidProducerEpoch):
		w.renew(cl)
	case errors.Is(err, kerr.UnknownTopicID), !errors.As(err, &ke) && !w.inClient(topic):
		// kgo keeps the id of a topic that was deleted and made again until it is
		// told to forget it. That fails all its writes in the client, which mend; so
		// it is done for that error, or for one of the client's own (no such
		// partition) while nothing is in the client.
		if w.mayPurge(topic) {
			w.log.Info("forgetting what the client knows of a topic", "topic", topic, "err", err)
			cl.PurgeTopicsFromProducing(topic)
		}
	}
	cl.ForceMetadataRefresh()
}

// inClient reports whether any write of the topic is on its way.
func (w *Writer) inClient(topic string) bool {
	for key, s := range *w.streams.Load() {
		if key.topic != topic {
			continue
		}
		s.mu.Lock()
		sent := s.sent
		s.mu.Unlock()
		if sent > 0 {
			return true
		}
	}
	return false
}

// mayPurge lets a topic be purged once in the longest pause: all its partitions
// fail together, and one purge is for all of them.
func (w *Writer) mayPurge(topic string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if last, ok := w.purged[topic]; ok && now.Sub(last) < w.opts.retryMax {
		return false
	}
	w.purged[topic] = now
	return true
}

// renew replaces a client whose producer id failed for good: it would fail every
// record for ever, also after an operator has given the right that was missing.
func (w *Writer) renew(old *kgo.Client) {
	if !producerIDFailed(old) { // not under the lock: the broker may be asked
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.aborting.Load() || w.client.Load() != old {
		return
	}
	cl, err := w.newClient()
	if err != nil {
		w.log.Error("a new Kafka client cannot be made; the old one is kept", "err", err)
		return
	}
	w.client.Store(cl)
	w.wg.Go(old.Close) // fails what it holds; the writes wait and go by the new one
}

// unstick gets back the writes that the client has lost sight of, by making it
// forget their topic, which fails them there; then they mend. It costs repeats of
// what was on its way to the topic, so it is for writes that no wait would land:
// for stuckAfter the client said nothing of the partition, and for as long again
// its leader answered others. A leader that answers but refuses (too few replicas)
// is met once: after that one write at a time is in the client.
//
// kgo 1.22.3 loses sight of a partition so: (1) its drain loop stages the
// partition's next batch; (2) an answer refuses another partition outright, which
// fails the producer id, and says of this one that its leader is another, which
// sets it back to its first batch; (3) the drain loop sees the failed id and takes
// back what it staged, which sets the partition to *that* batch
// (sink.undoStagedBatches), beyond the first. The first is never sent again, and
// without it the broker takes none of the others.
func (w *Writer) unstick(ctx context.Context) {
	silent := map[string][]*stream{}
	for key, s := range *w.streams.Load() {
		if s.silent(time.Now(), w.opts.stuckAfter) {
			silent[key.topic] = append(silent[key.topic], s)
		}
	}
	if len(silent) == 0 {
		return
	}
	cl := w.client.Load()
	ask, cancel := context.WithTimeout(ctx, w.cfg.DialTimeout)
	defer cancel()
	ends, _ := kadm.NewClient(cl).ListEndOffsets(ask, slices.Collect(maps.Keys(silent))...) // who gave no answer is not in it
	for topic, streams := range silent {
		for _, s := range streams {
			end, ok := ends.Lookup(topic, s.partition)
			if s.stuck(time.Now(), ok && end.Err == nil, w.opts.stuckAfter) && w.mayPurge(topic) {
				w.log.Warn("the Kafka client says nothing of writes whose leader answers; sending them again", "topic", topic, "partition", s.partition)
				w.drop(cl, topic)
			}
		}
	}
}

// drop makes the client fail what it has of a topic.
func (w *Writer) drop(cl *kgo.Client, topic string) {
	for key, s := range *w.streams.Load() {
		if key.topic == topic {
			s.mu.Lock()
			s.dropped = s.sent > 0
			s.mu.Unlock()
		}
	}
	cl.PurgeTopicsFromProducing(topic)
}
