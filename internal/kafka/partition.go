package kafka

// Partition is the partition of a key among n, as the Java client's default
// partitioner chooses it for a record with a key: murmur2, sign bit cleared,
// modulo n. It panics when n is not positive.
//
// Every topic of Milena that is keyed by endpoint id uses it explicitly, so an
// endpoint has the same partition number in all of them whoever wrote the record.
func Partition(key []byte, n int32) int32 {
	if n <= 0 {
		panic("kafka: Partition of a topic without partitions")
	}
	return int32(murmur2(key)&0x7fffffff) % n
}

// PartitionsEver are the partitions that a key has or had of a topic that has n now and
// never had more: that of now first. Kafka only ever adds partitions, and what is in one
// stays there, so this is where records of the key are, however often they were raised.
// On average it is half of them.
func PartitionsEver(key []byte, n int32) []int32 {
	ever := []int32{Partition(key, n)}
	hash, has := murmur2(key)&0x7fffffff, make([]bool, n)
	has[ever[0]] = true
	for m := n - 1; m > 0; m-- {
		if p := int32(hash) % m; !has[p] {
			ever, has[p] = append(ever, p), true
		}
	}
	return ever
}

// murmur2 is org.apache.kafka.common.utils.Utils.murmur2.
func murmur2(b []byte) uint32 {
	const (
		seed uint32 = 0x9747b28c
		m    uint32 = 0x5bd1e995
		r           = 24
	)
	h := seed ^ uint32(len(b))
	for len(b) >= 4 {
		k := uint32(b[3])<<24 | uint32(b[2])<<16 | uint32(b[1])<<8 | uint32(b[0])
		b = b[4:]
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(b[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}
