package kafka

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// What is sifted out of a log is what a whole reading finds, whatever the codec of its
// batches, and with transactions among them, also aborted ones.
func TestSiftFindsWhatAWholeReadingFinds(t *testing.T) {
	fake := testkit.NewFake(t, testkit.WithTopics(testkit.Topic{Name: "t", Partitions: 1}))
	n := 0
	produce := func(cl *kgo.Client, count int) {
		recs := make([]*kgo.Record, 0, count)
		for range count {
			recs = append(recs, &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "record %d of many, kind-%d.", n, n%97)})
			n++
		}
		testkit.Produce(t, cl, recs...)
	}
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		produce(fake.Client(kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(2<<10)), 500)
	}
	compareSifted(t, fake)
	tx := fake.Client(kgo.TransactionalID("x"), kgo.ProducerBatchMaxBytes(2<<10))
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(tx, 300)
		if err := tx.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	compareSifted(t, fake)
}

func compareSifted(t *testing.T, fake *testkit.Fake) {
	t.Helper()
	r, err := NewReader(Config{Brokers: fake.Brokers()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ends, err := r.Ends(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	needle := []byte("kind-42.")
	var want, got []int64
	wanted := func(b []byte) bool { return bytes.Contains(b, needle) }
	collect := func(into *[]int64) func([]schemas.Record) error {
		return func(recs []schemas.Record) error {
			for i := range recs {
				if wanted(recs[i].Value) {
					*into = append(*into, recs[i].Offset)
				}
			}
			return nil
		}
	}
	const from = 7
	if err := r.ReadForwards(t.Context(), "t", 0, from, ends[0], 16<<10, collect(&want)); err != nil {
		t.Fatal(err)
	}
	if err := r.Sift(t.Context(), "t", 0, from, ends[0], 16<<10, wanted, collect(&got)); err != nil {
		t.Fatal(err)
	}
	if len(want) < 20 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("sifted  %v\nwhole   %v", got, want)
	}
}
