package schemas

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"strings"
)

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// MessageID is the webhook-id of an event: msg_ and 26 base32 characters of
// SHA-256(source, NUL, id). It depends on nothing else, so every attempt, replay,
// endpoint and producer's duplicate of one event has the same one, and it holds
// no full stop (Standard Webhooks signs id.timestamp.body).
func MessageID(source, id string) string { return "msg_" + hash26(source, id) }

// hash26 is the first 130 bits of the SHA-256 of the parts with NULs between them.
func hash26(parts ...string) string {
	var stack [256]byte
	b := stack[:0]
	for i, part := range parts {
		if i > 0 {
			b = append(b, 0)
		}
		b = append(b, part...)
	}
	sum := sha256.Sum256(b)
	var text [56]byte
	lowerBase32.Encode(text[:], sum[:])
	return string(text[:26])
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
	return string(o.append(make([]byte, 0, len(o.Topic)+40)))
}

func (o Origin) append(b []byte) []byte {
	b = append(b, o.Topic...)
	b = append(b, '-')
	b = hex.AppendEncode(b, o.TopicID[:])
	b = append(b, '-')
	b = strconv.AppendInt(b, int64(o.Partition), 10)
	b = append(b, '-')
	return strconv.AppendInt(b, o.Offset, 10)
}

// Position writes topic-partition-offset, the default event id.
func (o Origin) Position() string {
	b := make([]byte, 0, len(o.Topic)+32)
	b = append(b, o.Topic...)
	b = append(b, '-')
	b = strconv.AppendInt(b, int64(o.Partition), 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, o.Offset, 10)
	return string(b)
}

// ParseOrigin reads what String wrote, and nothing that String would not write.
// Topics may hold hyphens.
func ParseOrigin(s string) (Origin, error) {
	o, n, ok := scanOrigin(s)
	if !ok {
		return Origin{}, errors.New("origin " + quote([]byte(s)) + ": want <topic>-<8 hex digits>-<partition>-<offset>")
	}
	o.Topic = s[:n]
	return o, nil
}

// ParseDeliveryID splits a delivery id into its origin and its endpoint id. The
// endpoint id is empty in the id of a record whose key was unreadable.
func ParseDeliveryID(s string) (Origin, string, error) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 || (i+1 < len(s) && !ValidEndpointID(s[i+1:])) {
		return Origin{}, "", errors.New("delivery id " + quote([]byte(s)) + ": want <origin>.<endpoint id>")
	}
	o, err := ParseOrigin(s[:i])
	if err != nil {
		return Origin{}, "", errors.New("delivery id " + quote([]byte(s)) + ": want <topic>-<8 hex digits>-<partition>-<offset>.<endpoint id>")
	}
	return o, s[i+1:], nil
}

// ValidEndpointID reports whether s may be the id of an endpoint: 1 to 64 letters,
// digits, underscores and hyphens. It holds no full stop, so that a delivery id
// and a dead letter's key can be taken apart again.
func ValidEndpointID(s string) bool { return validEndpointID(s) }

func validEndpointID[T string | []byte](s T) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// maxTopicLen is Kafka's.
const maxTopicLen = 249

// scanOrigin reads an origin without its topic, which is the first topicLen bytes.
func scanOrigin[T string | []byte](s T) (o Origin, topicLen int, ok bool) {
	i := lastHyphen(s, len(s))
	j := lastHyphen(s, i)
	k := lastHyphen(s, j)
	if k <= 0 || k > maxTopicLen || j-k != 9 {
		return o, 0, false
	}
	for n := range k {
		if c := s[n]; !isAlnum(c) && c != '.' && c != '_' && c != '-' {
			return o, 0, false
		}
	}
	for n := range 8 {
		d, isHex := unhex(s[k+1+n])
		if !isHex {
			return o, 0, false
		}
		o.TopicID[n/2] = o.TopicID[n/2]<<4 | d
	}
	p, okP := canonicalInt(s[j+1:i], math.MaxInt32)
	off, okO := canonicalInt(s[i+1:], math.MaxInt64)
	o.Partition, o.Offset = int32(p), off
	return o, k, okP && okO
}

func lastHyphen[T string | []byte](s T, end int) int {
	for i := end - 1; i >= 0; i-- {
		if s[i] == '-' {
			return i
		}
	}
	return -1
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

// canonicalInt reads a decimal without sign and leading zeros, at most limit.
func canonicalInt[T string | []byte](s T, limit int64) (int64, bool) {
	if len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	return parseInt(s, limit)
}

// parseInt reads decimal digits, at most limit.
func parseInt[T string | []byte](s T, limit int64) (int64, bool) {
	if len(s) == 0 || len(s) > 19 {
		return 0, false
	}
	var n uint64 // 19 digits fit
	for i := range len(s) {
		c := s[i] - '0'
		if c > 9 {
			return 0, false
		}
		n = n*10 + uint64(c)
	}
	return int64(n), n <= uint64(limit)
}
