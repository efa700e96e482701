package kafka

import (
	"testing"

	"pgregory.net/rapid"
)

// The vectors of Kafka's own UtilsTest.testMurmur2.
func TestMurmur2EqualsTheJavaClients(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestPartitionIsInRangeAndStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		n := rapid.Int32Range(1, 1000).Draw(t, "n")
		p := Partition(key, n)
		if p < 0 || p >= n || p != Partition(key, n) {
			t.Fatalf("Partition(%x, %d) = %d", key, n, p)
		}
	})
}
