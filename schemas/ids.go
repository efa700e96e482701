package schemas

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// MessageID is the webhook-id of an event: msg_ and 26 base32 characters of
// SHA-256(source, NUL, id). It depends on nothing else, so every attempt, replay,
// endpoint and producer's duplicate of one event has the same one, and it holds
// no full stop (Standard Webhooks signs id.timestamp.body).
func MessageID(source, id string) string {
	h := sha256.New()
	h.Write([]byte(source))
	h.Write([]byte{0})
	h.Write([]byte(id))
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	var text [56]byte
	lowerBase32.Encode(text[:], sum[:])
	return "msg_" + string(text[:26])
}

// Origin is where the first record of a delivery that Milena saw stands. It is
// frozen at the first hop. TopicID is the first four bytes of the topic's id,
// because a topic that was deleted and made again starts at offset 0 again.
type Origin struct {
	Topic     string
	TopicID   [4]byte
	Partition int32
	Offset    int64
}

// IsZero reports whether no origin is set.
func (o Origin) IsZero() bool { return o.Topic == "" }

// String writes an origin as topic-8hex-partition-offset.
func (o Origin) String() string {
	b := make([]byte, 0, len(o.Topic)+40)
	b = append(b, o.Topic...)
	b = append(b, '-')
	b = hex.AppendEncode(b, o.TopicID[:])
	b = append(b, '-')
	b = strconv.AppendInt(b, int64(o.Partition), 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, o.Offset, 10)
	return string(b)
}

// ParseOrigin reads what String wrote. Topics may hold hyphens.
func ParseOrigin(s string) (Origin, error) {
	parts := strings.Split(s, "-")
	bad := func() (Origin, error) {
		return Origin{}, fmt.Errorf("origin %q: want <topic>-<8 hex digits>-<partition>-<offset>", s)
	}
	if len(parts) < 4 {
		return bad()
	}
	n := len(parts)
	o := Origin{Topic: strings.Join(parts[:n-3], "-")}
	id, err := hex.DecodeString(parts[n-3])
	if err != nil || len(id) != len(o.TopicID) || o.Topic == "" {
		return bad()
	}
	copy(o.TopicID[:], id)
	p, err := strconv.ParseInt(parts[n-2], 10, 32)
	if err != nil || p < 0 {
		return bad()
	}
	o.Partition = int32(p)
	if o.Offset, err = strconv.ParseInt(parts[n-1], 10, 64); err != nil || o.Offset < 0 {
		return bad()
	}
	return o, nil
}
