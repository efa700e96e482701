// Package health reads the health topic: which owner claimed a partition last, what
// it wrote of the endpoints in trouble, and which records count for nothing because
// their writer had lost the partition. It writes nothing; only owners of partitions
// do. Package app claims partitions with it, the command line explains with it.
package health

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// View is one partition of health as it was read, from its beginning on. The zero
// value is an empty partition. It is not safe for concurrent use.
type View struct {
	claims  []schemas.Claim            // that count, ascending
	epoch   int64                      // of the last of them
	process string                     // that wrote it
	keys    [][]byte                   // of the records of claims, in order
	records map[string]*schemas.Health // of endpoints in trouble
	next    int64                      // after the last that was read
}

// ReadTo reads on, up to and without an offset.
func (v *View) ReadTo(ctx context.Context, r *kafka.Reader, topic string, partition int32, to int64) error {
	return r.ReadForwards(ctx, topic, partition, v.next, to, chunk, func(recs []schemas.Record) error {
		for i := range recs {
			v.Add(&recs[i])
		}
		return nil
	})
}

const chunk = 1 << 20 // bytes of one fetch

// Add takes the next record into account.
func (v *View) Add(rec *schemas.Record) {
	v.next = rec.Offset + 1
	if bytes.HasPrefix(rec.Key, []byte(schemas.ClaimKey)) {
		v.addClaim(rec)
		return
	}
	if claimOf(rec) < v.lastBefore(rec.Offset) {
		return // its writer had lost the partition; a claim stands before what is written under it
	}
	if rec.Value == nil {
		delete(v.records, string(rec.Key))
		return
	}
	health := new(schemas.Health)
	if json.Unmarshal(rec.Value, health) != nil {
		return // nobody of ours wrote it
	}
	if v.records == nil {
		v.records = map[string]*schemas.Health{}
	}
	v.records[string(rec.Key)] = health
}

// claimOf is the claim under which a record of health was written; -1: none.
func claimOf(rec *schemas.Record) int64 {
	for _, h := range rec.Headers {
		if h.Key == schemas.HeaderClaim {
			if n, err := strconv.ParseInt(string(h.Value), 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

func (v *View) addClaim(rec *schemas.Record) {
	var c schemas.ClaimRecord
	if rec.Value == nil {
		v.keys = slices.DeleteFunc(v.keys, func(key []byte) bool { return bytes.Equal(key, rec.Key) })
		return
	}
	if json.Unmarshal(rec.Value, &c) != nil {
		return
	}
	v.keys = append(v.keys, rec.Key)
	if c.Epoch <= v.epoch {
		return // its writer did not know of the one before it
	}
	v.epoch, v.process = c.Epoch, c.Process
	for _, e := range append(c.Earlier, schemas.Claim{Number: rec.Offset, HoldEnd: c.HoldEnd}) {
		i, found := slices.BinarySearchFunc(v.claims, e.Number, func(c schemas.Claim, n int64) int { return int(c.Number - n) })
		if !found {
			v.claims = slices.Insert(v.claims, i, e)
		}
	}
}

// Claims are the claims that count, ascending.
func (v *View) Claims() []schemas.Claim { return slices.Clone(v.claims) }

// Epoch is the highest epoch of a claim; 0: there is none.
func (v *View) Epoch() int64 { return v.epoch }

// Last reports whether the claim of that number is the last one that counts.
func (v *View) Last(number int64) bool {
	return len(v.claims) > 0 && v.claims[len(v.claims)-1].Number == number
}

// keptClaims is how many records of claims stay in health: while those under older
// ones may still be there, it must be known which were written too late.
const keptClaims = 64

// OldKeys are the keys of claims that nobody needs any more.
func (v *View) OldKeys() [][]byte {
	return v.keys[:max(0, len(v.keys)-keptClaims)]
}

// lastBefore is the number of the last claim before an offset; -1: none is known.
func (v *View) lastBefore(offset int64) int64 {
	last := int64(-1)
	for _, c := range v.claims {
		if c.Number < offset {
			last = c.Number
		}
	}
	return last
}

// Endpoints are the endpoints in trouble.
func (v *View) Endpoints() map[string]schemas.Health {
	out := map[string]schemas.Health{}
	for id, h := range v.records {
		out[id] = *h
	}
	return out
}

// Needed are the claims that a reader of hold has to know: one whose successor took
// over before the lowest place that anything is read from says nothing any more.
func (v *View) Needed(holdEnd int64) []schemas.Claim {
	lowest := holdEnd
	for _, h := range v.records {
		if h.Next != nil {
			lowest = min(lowest, *h.Next)
		}
	}
	first := 0
	for first+1 < len(v.claims) && v.claims[first+1].HoldEnd <= lowest {
		first++
	}
	return slices.Clone(v.claims[first:])
}
