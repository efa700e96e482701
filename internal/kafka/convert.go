package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/schemas"
)

// FromKgo is a consumed record as the other packages see it. Key, Value and the
// headers' values are shared with r, not copied. kgo keeps the id of a topic with
// the fetch and not with the record: pass FetchTopic.TopicID, or the zero id where
// it does not matter.
func FromKgo(r *kgo.Record, topicID [16]byte) schemas.Record {
	return schemas.Record{
		Topic:     r.Topic,
		TopicID:   topicID,
		Partition: r.Partition,
		Offset:    r.Offset,
		Timestamp: r.Timestamp,
		Key:       r.Key,
		Value:     r.Value,
		Headers:   fromKgoHeaders(r.Headers),
	}
}

func fromKgoHeaders(in []kgo.RecordHeader) []schemas.Header {
	if len(in) == 0 {
		return nil
	}
	out := make([]schemas.Header, len(in))
	for i, h := range in {
		out[i] = schemas.Header(h)
	}
	return out
}

func appendKgoHeaders(out []kgo.RecordHeader, in []schemas.Header) []kgo.RecordHeader {
	for _, h := range in {
		out = append(out, kgo.RecordHeader(h))
	}
	return out
}
