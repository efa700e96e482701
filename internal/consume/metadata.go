package consume

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/milena-project/milena/internal/offsets"
)

// MaxMetadata is the length of a commit's metadata, in characters, that brokers
// accept by default (offset.metadata.max.bytes).
const MaxMetadata = 4096

// metadataVersion begins the metadata that this package writes. What follows:
//
//	milena1;<topic id, 22 characters base64url>;<watermark>;<runs>
//
// where runs is base64url of unsigned varints: how many offsets, counted from the
// watermark, are not done, then how many are, and so on by turns.
const metadataVersion = "milena1"

// Foreign says why a commit's metadata was ignored.
type Foreign string

const (
	ForeignNone      Foreign = ""          // it was not: the metadata is ours and fits the commit
	ForeignEmpty     Foreign = "empty"     // nothing there: no reason to warn
	ForeignMember    Foreign = "member id" // what kgo writes by default: no reason to warn
	ForeignUnknown   Foreign = "unknown"   // written by another tool, or damaged
	ForeignVersion   Foreign = "version"   // written by another version of Milena
	ForeignTopic     Foreign = "topic"     // the topic was deleted and made again since
	ForeignWatermark Foreign = "watermark" // the offset was committed by something else since
)

// Warn reports whether somebody should hear of it.
func (f Foreign) Warn() bool { return f != ForeignNone && f != ForeignEmpty && f != ForeignMember }

// encodeMetadata writes the offsets above the tracker's watermark that are done,
// in at most limit characters; lower ones first when not all fit. It is never
// empty: topic id and watermark alone show a recreated topic.
func encodeMetadata(topicID [16]byte, t *offsets.Tracker, limit int) string {
	head := metadataVersion + ";" + base64.RawURLEncoding.EncodeToString(topicID[:]) + ";" +
		strconv.FormatInt(t.Watermark(), 10) + ";"
	room := base64.RawURLEncoding.DecodedLen(limit - len(head))
	if room < 0 {
		return ""
	}
	var runs []byte
	at := t.Watermark()
	t.EachDone(func(from, to int64) bool {
		n := len(runs)
		runs = binary.AppendUvarint(runs, uint64(from-at))
		runs = binary.AppendUvarint(runs, uint64(to-from))
		if len(runs) > room {
			runs = runs[:n]
			return false
		}
		at = to
		return true
	})
	return head + base64.RawURLEncoding.EncodeToString(runs)
}

// decodeMetadata reads what encodeMetadata wrote for a commit of that offset in
// that topic. Metadata that does not fit them says nothing, and the set is empty.
// It never fails: the metadata saves repeats and is never needed.
func decodeMetadata(text string, topicID [16]byte, offset int64) (offsets.Set, Foreign) {
	if text == "" {
		return nil, ForeignEmpty
	}
	version, rest, _ := strings.Cut(text, ";")
	if version != metadataVersion {
		switch {
		case len(text) <= 300 && memberID.MatchString(text): // client ids are at most 249 long
			return nil, ForeignMember
		case strings.HasPrefix(version, "milena"):
			return nil, ForeignVersion
		}
		return nil, ForeignUnknown
	}
	parts := strings.Split(rest, ";")
	if len(parts) != 3 {
		return nil, ForeignUnknown
	}
	id, err := base64.RawURLEncoding.Strict().DecodeString(parts[0])
	if err != nil || len(id) != len(topicID) {
		return nil, ForeignUnknown
	}
	watermark, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || watermark < 0 {
		return nil, ForeignUnknown
	}
	runs, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil {
		return nil, ForeignUnknown
	}
	set, err := decodeRuns(runs, watermark)
	switch {
	case err != nil:
		return nil, ForeignUnknown
	case [16]byte(id) != topicID:
		return nil, ForeignTopic
	case watermark != offset:
		return nil, ForeignWatermark
	}
	return set, ForeignNone
}

// memberID matches the member ids that clients make up (client id and a UUID), and
// the bare base64 UUID of the KIP-848 protocol.
var memberID = regexp.MustCompile(`(^|-)[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$|^[A-Za-z0-9_-]{22}$`)

// Completed are the offsets above a commit that are done, as the commit's metadata
// says; none where it says nothing or is not ours. For readers that look at a group
// from outside.
func Completed(metadata string, topicID [16]byte, offset int64) offsets.Set {
	set, _ := decodeMetadata(metadata, topicID, offset)
	return set
}

func decodeRuns(runs []byte, at int64) (offsets.Set, error) {
	// No partition has a span of more than this between its watermark and its last
	// offset; it keeps sums far from overflow.
	const most = 1 << 40
	var set offsets.Set
	for len(runs) > 0 {
		var step [2]int64
		for i := range step {
			v, n := binary.Uvarint(runs)
			if n <= 0 || v == 0 || v > most {
				return nil, fmt.Errorf("run of %d offsets", v)
			}
			step[i], runs = int64(v), runs[n:]
		}
		from := at + step[0]
		to := from + step[1]
		if from < at || to > 1<<62 {
			return nil, fmt.Errorf("offset %d", to)
		}
		set = append(set, offsets.Range{From: from, To: to})
		at = to
	}
	return set, nil
}
