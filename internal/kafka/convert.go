package kafka

import (
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/schemas"
)

// FromKgo is a consumed record as the other packages see it. Key, Value and
// headers are shared with r, not copied. kgo keeps the id of a topic with
// the fetch and not with the record: pass FetchTopic.TopicID, or the zero id where
// it does not matter.
func FromKgo(r *kgo.Record, topicID [16]byte) schemas.Record {
	return schemas.Record{
		Topic:     r.Topic,
		TopicID:   topicID,
		Partition: r.Partition,
		Offset:    r.Offset,
		Timestamp: r.Timestamp.UTC(), // whoever shows it says in which zone
		Key:       r.Key,
		Value:     r.Value,
		Headers:   fromKgoHeaders(r.Headers),
	}
}

// fromKgoHeaders is the same memory under another name: copying a dozen headers of
// every record is a tenth of the reading of a topic. That the two types are the same
// is checked by the compiler, with the conversion below it.
func fromKgoHeaders(in []kgo.RecordHeader) []schemas.Header {
	if len(in) == 0 {
		return nil
	}
	return unsafe.Slice((*schemas.Header)(unsafe.Pointer(&in[0])), len(in)) //nolint:gosec // see above
}

var _ = schemas.Header(kgo.RecordHeader{})

func appendKgoHeaders(out []kgo.RecordHeader, in []schemas.Header) []kgo.RecordHeader {
	for _, h := range in {
		out = append(out, kgo.RecordHeader(h))
	}
	return out
}
