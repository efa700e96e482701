package kafka

import (
	"context"
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/schemas"
)

// Where things stand in a record batch (message format 2).
const (
	batchLength     = 8
	batchMagic      = 16
	batchAttributes = 21
	batchLastDelta  = 23
	batchRecords    = 61 // the records, compressed or not

	batchCodec   = 0x07
	batchControl = 0x20
)

// Sift is ReadForwards for a needle in a haystack. wanted is asked of each batch as it
// stands in the log, unpacked: the records of a batch that it does not want are not
// even parsed, and parsing is what reading costs. A record that matters must be found
// by wanted; what fn gets besides, it has to pass over.
func (r *Reader) Sift(ctx context.Context, topic string, partition int32, from, to int64, chunkBytes int32, wanted func(batch []byte) bool, fn func([]schemas.Record) error) error {
	return forwards(from, to, func(at int64) (Fetched, error) {
		return r.fetchFrom(ctx, topic, partition, at, chunkBytes, fetchHow{wanted: wanted})
	}, fn)
}

// sift leaves the wanted batches of an answer in it, and returns the offset after the
// last whole batch. What it does not understand it leaves to be parsed.
func (r *Reader) sift(rp *kmsg.FetchResponseTopicPartition, wanted func([]byte) bool) (next int64) {
	if len(rp.AbortedTransactions) > 0 {
		return 0 // which records count is known only from all of them
	}
	all := rp.RecordBatches
	var kept []byte
	for rest := all; len(rest) >= batchRecords; {
		size := int64(binary.BigEndian.Uint32(rest[batchLength:])) + batchLength + 4
		if size < batchRecords || size > int64(len(rest)) {
			break // the last one is cut off
		}
		batch := rest[:size]
		rest = rest[size:]
		if batch[batchMagic] != 2 {
			return 0
		}
		next = int64(binary.BigEndian.Uint64(batch)) + int64(binary.BigEndian.Uint32(batch[batchLastDelta:])) + 1
		attributes := binary.BigEndian.Uint16(batch[batchAttributes:])
		if attributes&batchControl != 0 {
			continue
		}
		unpacked, err := r.unpack.Decompress(batch[batchRecords:], kgo.CompressionCodecType(attributes&batchCodec)) //nolint:gosec // three bits
		if err != nil || wanted(unpacked) {
			kept = append(kept, batch...)
		}
	}
	if next > 0 {
		rp.RecordBatches = kept
	}
	return next
}
