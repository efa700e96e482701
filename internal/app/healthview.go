package app

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/milena-project/milena/schemas"
)

// healthView is one partition of health as it was read.
type healthView struct {
	claims  []schemas.Claim            // that count, ascending
	epoch   int64                      // of the last of them
	keys    [][]byte                   // of their records, in order
	records map[string]*schemas.Health // nil: a tombstone
}

func (v *healthView) add(rec *schemas.Record) {
	if bytes.HasPrefix(rec.Key, []byte(schemas.ClaimKey)) {
		v.addClaim(rec)
		return
	}
	if claimOf(rec) < v.lastBefore(rec.Offset) {
		return // its writer had lost the partition; a claim stands before what is written under it
	}
	var health *schemas.Health
	if rec.Value != nil {
		health = new(schemas.Health)
		if json.Unmarshal(rec.Value, health) != nil {
			return // nobody of ours wrote it
		}
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

func (v *healthView) addClaim(rec *schemas.Record) {
	var c schemas.ClaimRecord
	if rec.Value == nil || json.Unmarshal(rec.Value, &c) != nil {
		return
	}
	v.keys = append(v.keys, rec.Key)
	if c.Epoch <= v.epoch {
		return // its writer did not know of the one before it
	}
	v.epoch = c.Epoch
	for _, e := range append(c.Earlier, schemas.Claim{Number: rec.Offset, HoldEnd: c.HoldEnd}) {
		i, found := slices.BinarySearchFunc(v.claims, e.Number, func(c schemas.Claim, n int64) int { return int(c.Number - n) })
		if !found {
			v.claims = slices.Insert(v.claims, i, e)
		}
	}
}

// last reports whether the claim of that number is the last one that counts.
func (v *healthView) last(number int64) bool {
	return len(v.claims) > 0 && v.claims[len(v.claims)-1].Number == number
}

// keptClaims is how many records of claims stay in health: while those under older
// ones may still be there, it must be known which were written too late.
const keptClaims = 64

// oldKeys are the keys of claims that nobody needs any more.
func (v *healthView) oldKeys() [][]byte {
	return v.keys[:max(0, len(v.keys)-keptClaims)]
}

// lastBefore is the number of the last claim before an offset; -1: none is known.
func (v *healthView) lastBefore(offset int64) int64 {
	last := int64(-1)
	for _, c := range v.claims {
		if c.Number < offset {
			last = c.Number
		}
	}
	return last
}

// valid are the endpoints in trouble.
func (v *healthView) valid() map[string]schemas.Health {
	out := map[string]schemas.Health{}
	for id, h := range v.records {
		if h != nil {
			out[id] = *h
		}
	}
	return out
}

// needed are the claims that a reader of hold has to know: one whose successor took
// over before the lowest place that anything is read from says nothing any more.
func (v *healthView) needed(holdEnd int64) []schemas.Claim {
	lowest := holdEnd
	for _, h := range v.records {
		if h != nil && h.Next != nil {
			lowest = min(lowest, *h.Next)
		}
	}
	first := 0
	for first+1 < len(v.claims) && v.claims[first+1].HoldEnd <= lowest {
		first++
	}
	return slices.Clone(v.claims[first:])
}
