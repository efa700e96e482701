package flowtest

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/testkit"
)

// A backlog many times larger than what the process may hold, of endpoints that all
// hang: memory stays within what the configuration adds up to, and the backlog is
// worked off into hold all the same.
func TestInvariant9MemoryIsBoundedByConfigurationNotByTheBacklog(t *testing.T) {
	const records, size, held = 75_000, 4000, 10_000
	f := newFlow(t, testkit.Compact())
	f.cfg.Dispatcher.QueuedBytes = 2 << 20
	f.cfg.Dispatcher.Duplicates.Entries = 10_000
	f.cfg.Dispatcher.UnsettledPerPartition = 200
	ids := f.endpoints(20)
	gate := make(chan struct{})
	defer close(gate)
	for _, id := range ids {
		f.receiver.Script("/"+id, testkit.Always(testkit.Answer{Hang: gate}))
	}
	p := f.spawn()
	base := p.peakHeap()
	recs := make([]*kgo.Record, 0, 2000)
	for i := range records {
		body := make([]byte, size) // nothing to compress: a fetch is bounded by what travels
		_, _ = rand.Read(body)
		recs = append(recs, f.record(ids[i%len(ids)], "backlog", body))
		if len(recs) == cap(recs) {
			testkit.Produce(t, f.client, recs...)
			recs = recs[:0]
		}
	}
	testkit.Eventually(t, time.Minute, func() string {
		if n := f.endOf(f.names().Hold()); n < held {
			return fmt.Sprintf("%d of %d records are on hold", n, held)
		}
		return ""
	})
	peak, most := p.peakHeap(), base+heapBound(&f.cfg, size)
	t.Logf("heap: %d MiB idle, %d MiB at its peak, %d MiB allowed, for a backlog of %d MiB",
		base>>20, peak>>20, most>>20, records*size>>20)
	if peak > most {
		t.Errorf("the heap reached %d MiB, more than %d MiB", peak>>20, most>>20)
	}
}

// heapBound adds up what a dispatcher may hold by its configuration, for payloads of
// that size.
func heapBound(c *config.Config, size int64) int64 {
	const (
		fetch      = 512 << 10 // of a partition, and four of them wait for Take: consume.Config
		answer     = 16 << 20  // of a broker to one fetch: consume.Config.FetchMaxBytes
		offsets    = 20_000    // that are read and not settled: dispatcher.Config.PartitionOffsets
		perOffset  = 256       // bytes of one that waits in the log only
		perKey     = 128       // bytes of a remembered duplicate
		garbage    = 2         // the collector lets the heap grow to twice what lives (GOGC=100)
		perMessage = 2 << 10   // bytes of a record beside its payload
		codecs     = 16 << 20  // compression's buffers
	)
	partitions := int64(c.Topics.Partitions)
	live := codecs + answer + int64(c.Dispatcher.QueuedBytes) +
		partitions*(4+1+1)*fetch +
		partitions*offsets*perOffset +
		partitions*int64(c.Dispatcher.UnsettledPerPartition)*(size+perMessage) +
		int64(c.Dispatcher.Duplicates.Entries)*perKey
	return garbage * live
}
