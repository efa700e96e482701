package dlq

import "hash/maphash"

// seen is a set of the 8-byte hashes of record keys: a topic read backwards shows
// the last word about a key first, so a key that was seen already is settled. It
// takes 9 to 12 bytes a key where there are many: 256 open-addressed tables that grow
// one at a time, by a quarter. Two keys of one reading have the same hash with a probability of n²/2⁶⁵
// (one in a million for five million letters); the seed is another in every
// process, so the next reading would tell them apart.
type seen struct {
	tables [256]table
	n      int
}

type table struct {
	slots []uint64 // 0: free
	used  int
}

var hashSeed = maphash.MakeSeed()

func hashOf(key []byte) uint64       { return max(1, maphash.Bytes(hashSeed, key)) }
func hashOfString(key string) uint64 { return max(1, maphash.String(hashSeed, key)) }

// add reports whether h is new.
func (s *seen) add(h uint64) bool {
	t := &s.tables[h>>56]
	t.room(allBits)
	slot := t.find(h, allBits)
	if *slot != 0 {
		return false
	}
	*slot = h
	t.used++
	s.n++
	return true
}

func (s *seen) has(h uint64) bool {
	t := &s.tables[h>>56]
	return len(t.slots) > 0 && *t.find(h, allBits) != 0
}

const allBits = ^uint64(0)

// find is the slot of h, or the free one that it would have; mask says which bits of a
// slot are the hash.
func (t *table) find(h, mask uint64) *uint64 {
	h &= mask
	// The low half of h is spread over the slots without a division.
	for i := int(uint64(uint32(h)) * uint64(len(t.slots)) >> 32); ; i++ {
		if i == len(t.slots) {
			i = 0
		}
		if slot := &t.slots[i]; *slot == 0 || *slot&mask == h {
			return slot
		}
	}
}

// room makes sure that there is a free slot, and few full ones before it.
func (t *table) room(mask uint64) {
	if (t.used+1)*8 <= len(t.slots)*7 {
		return
	}
	old := t.slots
	t.slots = make([]uint64, max(8, len(old)+len(old)/4))
	for _, slot := range old {
		if slot != 0 {
			*t.find(slot, mask) = slot
		}
	}
}
