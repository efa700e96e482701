package retrytopics

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Limits of a policy that an endpoint brings along. Every wait is made of tier
// hops and every hop is a fresh record, so retention limits none of them; the
// limits only catch slips such as 240h for 240s.
const (
	LongestMaxAge = 30 * 24 * time.Hour
	LongestStep   = 7 * 24 * time.Hour
	MostSteps     = 50
)

// Preset is a retry policy with a name, as data.
type Preset struct {
	Name          string
	Schedule      []time.Duration // delays between attempts, so one attempt more than delays
	FinalStatuses []string        // answers that end the delivery at once; see Policy.FinalStatus
	Jitter        time.Duration   // each delay gets U(0, Jitter) more; 0: U(0, 10 %)
}

// DefaultPreset is the preset of an endpoint that names none.
const DefaultPreset = "standard"

var presets = []Preset{
	{
		Name: DefaultPreset,
		Schedule: []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour,
			12 * time.Hour, 24 * time.Hour, 24 * time.Hour},
	},
	{
		Name: "proofledger",
		Schedule: []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour,
			12 * time.Hour, 24 * time.Hour},
		FinalStatuses: []string{"3xx", "4xx"},
	},
	{
		Name:          "fast",
		Schedule:      []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second},
		FinalStatuses: []string{"400", "401", "403"},
		Jitter:        time.Second,
	},
	{Name: "none"},
}

// Presets lists the presets in the order in which they are documented. The slices are copies.
func Presets() []Preset {
	out := slices.Clone(presets)
	for i := range out {
		out[i].Schedule = slices.Clone(out[i].Schedule)
		out[i].FinalStatuses = slices.Clone(out[i].FinalStatuses)
	}
	return out
}

// Verdict says whether a delivery is tried again.
type Verdict int

const (
	Retry     Verdict = iota // again, at the due time
	Exhausted                // the schedule has ended: dead, schemas.ReasonExhausted
	Expired                  // the due time would lie beyond the max age: dead, schemas.ReasonExpired
)

func (v Verdict) String() string {
	switch v {
	case Retry:
		return "retry"
	case Exhausted:
		return "exhausted"
	case Expired:
		return "expired"
	}
	return fmt.Sprintf("Verdict(%d)", int(v))
}

// JitterKey names one attempt of one delivery. Jitter is drawn from it and from
// nothing else, so that two copies of a delivery that a crash has made come due
// together and the owner sees that they are one.
type JitterKey struct {
	DeliveryID string
	Generation int
	Attempt    int // attempts that came to an outcome, the one just made included: at least 1
}

// Policy is a compiled retry policy. It is immutable; the zero Policy makes one attempt.
type Policy struct {
	steps  []step
	finals []statusRange
	maxAge time.Duration
}

// step is one delay of a schedule. Its jitter is U(0, spread) plus, where there is
// a grid, one point of it.
type step struct {
	delay  time.Duration
	spread time.Duration
	grid   []time.Duration
}

type statusRange struct{ low, high int }

// Compile checks an endpoint's retry settings and makes a Policy of them. What is
// not set comes from the preset, and what names no preset from "standard". The
// error says which field is wrong and what would be right.
func Compile(r schemas.Retry) (Policy, error) {
	name := r.Preset
	if name == "" {
		name = DefaultPreset
	}
	i := slices.IndexFunc(presets, func(p Preset) bool { return p.Name == name })
	if i < 0 {
		return Policy{}, fmt.Errorf("retry.preset %q is unknown: want one of %s", r.Preset, presetNames())
	}
	preset := presets[i]

	schedule := preset.Schedule
	if r.Schedule != nil {
		schedule = make([]time.Duration, len(r.Schedule))
		for i, d := range r.Schedule {
			schedule[i] = time.Duration(d)
		}
	}
	finals := preset.FinalStatuses
	if r.FinalStatuses != nil {
		finals = r.FinalStatuses
	}
	p := Policy{maxAge: schemas.DefaultMaxAge}
	if r.MaxAge != 0 {
		p.maxAge = time.Duration(r.MaxAge)
	}
	if p.maxAge < time.Second || p.maxAge > LongestMaxAge {
		return Policy{}, fmt.Errorf("retry.max_age %v: want 1s to %v", p.maxAge, LongestMaxAge)
	}
	if len(schedule) > MostSteps {
		return Policy{}, fmt.Errorf("retry.schedule has %d delays: at most %d", len(schedule), MostSteps)
	}
	for _, d := range schedule {
		if d < 0 || d > LongestStep {
			return Policy{}, fmt.Errorf("retry.schedule: delay %v: want 0s to %v", d, LongestStep)
		}
		p.steps = append(p.steps, newStep(d, preset.Jitter))
	}
	for _, s := range finals {
		ranges, err := parseFinal(s)
		if err != nil {
			return Policy{}, err
		}
		p.finals = append(p.finals, ranges...)
	}
	return p, nil
}

func presetNames() string {
	names := make([]string, len(presets))
	for i := range presets {
		names[i] = presets[i].Name
	}
	return strings.Join(names, ", ")
}

// parseFinal reads "404" or "4xx". A class leaves out 408, 425 and 429: they ask
// for another try by their meaning, so ending at them takes their own number.
func parseFinal(s string) ([]statusRange, error) {
	switch s {
	case "3xx":
		return []statusRange{{300, 399}}, nil
	case "4xx":
		return []statusRange{{400, 407}, {409, 424}, {426, 428}, {430, 499}}, nil
	case "5xx":
		return []statusRange{{500, 599}}, nil
	}
	if len(s) == 3 && s >= "300" && s <= "599" && strings.Trim(s, "0123456789") == "" {
		n := int(s[0]-'0')*100 + int(s[1]-'0')*10 + int(s[2]-'0')
		return []statusRange{{n, n}}, nil
	}
	return nil, fmt.Errorf("retry.final_statuses: %q: want a status from 300 to 599, or 3xx, 4xx, 5xx", s)
}

// gridTail is what a grid leaves for the heap of the releaser: nearer than that,
// a delivery waits in memory and costs no tier.
const gridTail = 10 * time.Second

// gridPoints is how many points a grid keeps at least, when its dearest are left out.
const gridPoints = 24

// newStep picks how the jitter of a delay is drawn. U(0, 10 %) of a day, taken
// literally, is hours, minutes and seconds of rest that the tiers must make up
// one by one. Points that are made of few tiers cost half of that, and
// U(0, 10 s) between them keeps deliveries that failed together apart.
func newStep(delay, jitter time.Duration) step {
	if jitter > 0 {
		return step{delay: delay, spread: jitter}
	}
	span := delay / 10
	var unit time.Duration
	for _, tier := range defaultTiers {
		if tier > 0 && span/tier >= 12 {
			unit = tier
		}
	}
	if unit == 0 {
		return step{delay: delay, spread: span}
	}
	var grid []time.Duration
	for g := time.Duration(0); g <= span-gridTail; g += unit {
		grid = append(grid, g)
	}
	for dearest := 2; ; dearest++ {
		cheap := slices.DeleteFunc(slices.Clone(grid), func(g time.Duration) bool { return defaultTiers.Writes(g) > dearest })
		if len(cheap) >= min(gridPoints, len(grid)) {
			return step{delay: delay, spread: gridTail, grid: cheap}
		}
	}
}

// jitter is deterministic in the key. It lies in [0, 10 %] of the delay, or in
// [0, Jitter] of a preset that has one.
func (s step) jitter(k JitterKey) time.Duration {
	h := k.hash()
	var j time.Duration
	if n := len(s.grid); n > 0 {
		i, _ := bits.Mul64(h, uint64(n))
		j = s.grid[i]
		h = mix(h)
	}
	u, _ := bits.Mul64(h, uint64(s.spread)+1)
	return j + time.Duration(u)
}

// hash is FNV-1a with a finalizer (splitmix64), written out because its values
// must never change: processes of different versions draw the same jitter.
func (k JitterKey) hash() uint64 {
	h := uint64(14695981039346656037)
	for i := range len(k.DeliveryID) {
		h = (h ^ uint64(k.DeliveryID[i])) * 1099511628211
	}
	h = mix(h ^ uint64(k.Generation))
	return mix(h ^ uint64(k.Attempt))
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Next plans the try after a failed attempt. retryAfter is what the answer asked
// for (0: nothing); it counts when it is later than the schedule, up to 24 h.
// A due time beyond enqueued plus the max age is Expired now and not in hours. A
// zero enqueued switches that check off, for a process whose clock has jumped.
// The due time is a whole millisecond, as records carry it, and never earlier than
// the schedule says.
func (p Policy) Next(key JitterKey, now, enqueued time.Time, retryAfter time.Duration) (due time.Time, verdict Verdict) {
	i := max(key.Attempt, 1) - 1
	if i >= len(p.steps) {
		return time.Time{}, Exhausted
	}
	wait := p.steps[i].delay + p.steps[i].jitter(key)
	wait = max(wait, min(retryAfter, schemas.MaxRetryAfter))
	due = ceilMilli(now.Add(wait))
	if !enqueued.IsZero() && due.After(enqueued.Add(p.maxAge)) {
		return time.Time{}, Expired
	}
	return due, Retry
}

// ceilMilli rounds up: a header holds milliseconds, and rounding down would be early.
// It also drops the monotonic reading, for due times are wall-clock data.
func ceilMilli(t time.Time) time.Time {
	down := t.Round(0).Truncate(time.Millisecond)
	if down.Before(t) {
		return down.Add(time.Millisecond)
	}
	return down
}

// FinalStatus reports whether an HTTP status ends the delivery at once (dead
// rejected). 410 always does (dead gone), 2xx never.
func (p Policy) FinalStatus(code int) bool {
	if code == 410 {
		return true
	}
	return slices.ContainsFunc(p.finals, func(r statusRange) bool { return r.low <= code && code <= r.high })
}

// Attempts is how many attempts the policy makes at most.
func (p Policy) Attempts() int { return len(p.steps) + 1 }

// MaxAge is how long after its milena-enqueued time a delivery may still be tried.
func (p Policy) MaxAge() time.Duration { return p.maxAge }

// TotalSpan is how long the whole schedule takes from the first failure to the last
// try: without jitter, and with all of it. Attempts and Retry-After come on top.
func (p Policy) TotalSpan() (shortest, longest time.Duration) {
	for _, s := range p.steps {
		shortest += s.delay
		longest += s.delay + s.spread
		if n := len(s.grid); n > 0 {
			longest += s.grid[n-1]
		}
	}
	return shortest, longest
}
