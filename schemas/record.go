package schemas

import (
	"strconv"
	"time"
)

// Record is a Kafka record as Milena's packages hand it to each other.
// A nil Value is a tombstone.
type Record struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	Offset    int64
	Timestamp time.Time
	Key       []byte
	Value     []byte
	Headers   []Header
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
