package retrytopics

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Near is how close to its not-before time a delivery leaves the tiers: nearer than
// that it waits in the releaser's memory. It bounds what a crash makes the releaser
// do twice.
const Near = 10 * time.Second

// Tiers is a sorted set of delays that begins with 0s, one topic each. Together
// they are a timing wheel: any wait is a walk over ever smaller tiers.
type Tiers []time.Duration

// defaultTiers are what the grids of jitter are made for.
var defaultTiers = Tiers(schemas.DefaultTiers())

// NewTiers sorts and checks a configured set. 0s must be in it, because a delivery
// that is due within ten seconds has to go somewhere, and a tier of at most ten
// seconds, else one that is due in eleven would go round the 0s tier without rest.
// All are whole seconds, because topic names say no less. A wait costs about half
// the ratio of one tier to the next in writes, summed over the tiers below it.
func NewTiers(delays ...time.Duration) (Tiers, error) {
	t := slices.Compact(slices.Sorted(slices.Values(delays)))
	if len(t) == 0 || t[0] != 0 {
		return nil, fmt.Errorf("retry.tiers %v: 0s must be the smallest", delays)
	}
	if len(t) < 2 || t[1] > Near {
		return nil, fmt.Errorf("retry.tiers %v: one must be from 1s to %v", delays, Near)
	}
	for _, d := range t {
		if d%time.Second != 0 {
			return nil, fmt.Errorf("retry.tiers: %v is not a whole number of seconds", d)
		}
		if d > LongestStep {
			return nil, fmt.Errorf("retry.tiers: %v is more than %v", d, LongestStep)
		}
	}
	return t, nil
}

// Choose is the tier for a delivery that is due after remaining: the largest that
// is not longer, so that no tier can make it late; 0s when it is due.
func (t Tiers) Choose(remaining time.Duration) time.Duration {
	i, found := slices.BinarySearch(t, remaining)
	switch {
	case found:
		return t[i]
	case i == 0:
		return 0
	}
	return t[i-1]
}

// Writes is how many tier writes a wait costs when every hop is on time: one for
// each tier on the way down to Near, none for a wait of zero.
func (t Tiers) Writes(wait time.Duration) int {
	if wait <= 0 {
		return 0
	}
	n := 0
	for first := true; first || wait > Near; first = false {
		n++
		wait -= t.Choose(wait)
	}
	return n
}

// ParseTier reads the delay from the name of a tier's topic, whatever set of tiers
// is configured now; false if the topic is no tier.
func ParseTier(names schemas.Names, topic string) (time.Duration, bool) {
	label, ok := strings.CutPrefix(topic, names.RetryPrefix())
	if !ok || len(label) < 2 {
		return 0, false
	}
	unit, ok := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour}[label[len(label)-1]]
	n, err := strconv.ParseUint(label[:len(label)-1], 10, 31)
	if !ok || err != nil || time.Duration(n) > LongestStep/unit {
		return 0, false
	}
	return time.Duration(n) * unit, true
}
