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
	if (t.used+1)*8 > len(t.slots)*7 {
		t.grow()
	}
	if !t.put(h) {
		return false
	}
	s.n++
	return true
}

func (s *seen) has(h uint64) bool {
	t := &s.tables[h>>56]
	if len(t.slots) == 0 {
		return false
	}
	for i := t.home(h); ; i++ {
		if i == len(t.slots) {
			i = 0
		}
		switch t.slots[i] {
		case h:
			return true
		case 0:
			return false
		}
	}
}

// home spreads the low half of h over the slots without a division.
func (t *table) home(h uint64) int { return int(uint64(uint32(h)) * uint64(len(t.slots)) >> 32) }

func (t *table) put(h uint64) bool {
	for i := t.home(h); ; i++ {
		if i == len(t.slots) {
			i = 0
		}
		switch t.slots[i] {
		case h:
			return false
		case 0:
			t.slots[i] = h
			t.used++
			return true
		}
	}
}

func (t *table) grow() {
	old := t.slots
	t.slots, t.used = make([]uint64, max(8, len(old)+len(old)/4)), 0
	for _, h := range old {
		if h != 0 {
			t.put(h)
		}
	}
}
