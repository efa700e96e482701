package testkit

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// SoakBudget is how long a soak test, named TestSoak…, may go on: MILENA_SOAK,
// which "make soak" sets. It skips the test when that is not set.
func SoakBudget(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("MILENA_SOAK")
	if text == "" {
		t.Skip("a soak test: make soak")
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("MILENA_SOAK=%q: want a duration such as 10m", text)
	}
	return d
}

// Rand is the source of a test's random choices. It says its seed in the
// test's log; MILENA_SEED repeats a run. Without it every run differs.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("MILENA_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("MILENA_SEED=%q: want a whole number", text)
		}
		seed = n
	}
	t.Logf("MILENA_SEED=%d", seed)
	name := fnv.New64a() // tests of one seed still differ from each other
	_, _ = name.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(seed, name.Sum64()))
}
