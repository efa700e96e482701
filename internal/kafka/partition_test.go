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

func TestWhereverAKeyWasIsLookedForHoweverOftenPartitionsWereRaised(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		n := rapid.Int32Range(1, 300).Draw(t, "n")
		ever := PartitionsEver(key, n)
		had := map[int32]bool{}
		for count := int32(1); count <= n; count++ { // any history is some of these
			had[Partition(key, count)] = true
		}
		for _, p := range ever {
			if !had[p] {
				t.Fatalf("%d, in which it never can be, or twice: %v", p, ever)
			}
			delete(had, p)
		}
		if len(had) > 0 || ever[0] != Partition(key, n) {
			t.Fatalf("%v lacks %v, or does not begin with %d", ever, had, Partition(key, n))
		}
	})
}
