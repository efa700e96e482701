package kafka

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/milena-project/milena/schemas"
)

const day = 24 * time.Hour

// TombstonesKept is how long the tombstone of a dead letter stays at least
// (delete.retention.ms): by it an import knows which lives a letter has had. A
// dispatcher must have forgotten a delivery by then.
const TombstonesKept = day

// TopicsConfig says what Milena's topics shall look like. Zero values mean the
// default named there.
type TopicsConfig struct {
	Names           schemas.Names   // default prefix: schemas.DefaultPrefix
	Partitions      int32           // of deliveries, hold, dlq, attempts and health; default 12
	RetryPartitions int32           // of each tier; default 3
	Replication     int16           // 0 or -1: the broker's default
	MinInsync       int             // min.insync.replicas; 0: the broker's default
	Tiers           []time.Duration // default schemas.DefaultTiers
	MaxAge          time.Duration   // the longest max_age of a delivery; default 96h
	Sizes           Sizes           // default DefaultSizes
	Sources         []string        // topics of others that the router reads; they are checked, never made or changed
	// KeepForever makes every topic with retention.ms=-1, for the embedded broker:
	// it applies retention to compacted topics too, and by the oldest batch.
	KeepForever bool
}

// WithDefaults fills in what was left out.
func (c TopicsConfig) WithDefaults() TopicsConfig {
	if c.Names.Prefix == "" {
		c.Names.Prefix = schemas.DefaultPrefix
	}
	if c.Partitions <= 0 {
		c.Partitions = 12
	}
	if c.RetryPartitions <= 0 {
		c.RetryPartitions = 3
	}
	if c.Replication <= 0 {
		c.Replication = -1
	}
	if len(c.Tiers) == 0 {
		c.Tiers = schemas.DefaultTiers()
	}
	if c.MaxAge <= 0 {
		c.MaxAge = schemas.DefaultMaxAge
	}
	if c.Sizes == (Sizes{}) {
		c.Sizes = DefaultSizes
	}
	return c
}

// Rule says when what a topic has is as good as what is wanted.
type Rule string

const (
	RuleEqual   Rule = "equal"    // the same; lists in any order
	RuleAtLeast Rule = "at least" // a number not below it; -1 is more than any
	RuleAtMost  Rule = "at most"  // a number not above it
)

// Setting is one topic configuration that is wanted.
type Setting struct {
	Key   string
	Value string
	Rule  Rule
	Why   string // what goes wrong otherwise; stands in messages
	// Optional: brokers that do not know the key are not asked for it.
	Optional bool
	// Advice: the start-up check passes without it; `topics plan` shows it.
	Advice bool
}

// Count says how many partitions a topic must have.
type Count string

const (
	CountAny  Count = "any"  // at least one
	CountSame Count = "same" // as many as deliveries
	CountOne  Count = "one"  // exactly one: its order is the order of everything in it
)

// TopicSpec is one topic as it shall be.
type TopicSpec struct {
	Name        string
	Purpose     string
	Partitions  int32 // when it is made
	Count       Count // what is accepted afterwards
	Replication int16 // -1: the broker's default
	Settings    []Setting
}

// DesiredTopics are all topics of an installation, deliveries first (design,
// section 2).
func DesiredTopics(c TopicsConfig) []TopicSpec {
	c = c.WithDefaults()
	n, floor := c.Names, c.MaxAge+schemas.KeptBeyondMaxAge
	const lost = "a delivery that is still waiting would be deleted"
	specs := []TopicSpec{
		c.topic(n.Deliveries(), "work to do now", CountSame, c.work(floor, lost, c.Sizes.Deliveries())...),
		c.topic(n.Hold(), "work that cannot be sent now", CountSame, c.work(floor, lost, c.Sizes.Ours())...),
	}
	for _, d := range c.Tiers {
		specs = append(specs, c.Tier(n.Retry(d)))
	}
	size := c.size(c.Sizes.Ours())
	specs = append(specs,
		c.topic(n.DLQ(), "dead letters", CountSame, policy("compact,delete"), c.keep(30*day, "dead letters would be deleted earlier"),
			Setting{Key: "segment.ms", Value: ms(day), Rule: RuleAtMost, Advice: true, Why: "replayed letters would be compacted away late"},
			Setting{Key: "delete.retention.ms", Value: ms(TombstonesKept), Rule: RuleAtLeast, Advice: true, Why: "an import could not tell which lives a letter has had"}, c.unbounded(), size),
		c.topic(n.Attempts(), "the delivery log", CountSame, policy("delete"), c.keep(7*day, "the delivery log would be shorter"), size),
		c.topic(n.Endpoints(), "the registry", CountOne, policy("compact"), size),
		c.topic(n.Health(), "endpoints in trouble, and claims of owners", CountSame, policy("compact"),
			Setting{Key: "min.compaction.lag.ms", Value: ms(time.Hour), Rule: RuleAtLeast, Optional: true, Why: "a claim could be gone before an owner has read it"}, size),
		c.topic(n.Runs(), "replays and other runs", CountOne, policy("compact"), size),
		c.topic(n.Notices(), "notices for owners of endpoints", CountAny, policy("delete"), c.keep(30*day, "notices would be deleted earlier"), size),
		c.topic(n.Audit(), "who changed what", CountOne, policy("delete"), c.keep(90*day, "the audit log would be shorter"), size),
	)
	return specs
}

// Tier is the topic of one delay, also of one that is no longer configured but
// whose topic exists.
func (c TopicsConfig) Tier(name string) TopicSpec {
	c = c.WithDefaults()
	return c.topic(name, "failed attempts waiting for their time", CountAny,
		c.work(c.MaxAge+schemas.KeptBeyondMaxAge, "a retry that is still waiting would be deleted", c.Sizes.Ours())...)
}

func (c TopicsConfig) topic(name, purpose string, count Count, settings ...Setting) TopicSpec {
	s := TopicSpec{Name: name, Purpose: purpose, Count: count, Replication: c.Replication, Settings: settings}
	switch count {
	case CountOne:
		s.Partitions = 1
	case CountSame:
		s.Partitions = c.Partitions
	default:
		s.Partitions = c.RetryPartitions
	}
	s.Settings = append(s.Settings, Setting{Key: "message.timestamp.type", Value: "LogAppendTime", Rule: RuleEqual, Optional: true,
		Why: "retention and ages would go by producers' clocks"})
	if c.MinInsync > 0 {
		s.Settings = append(s.Settings, Setting{Key: "min.insync.replicas", Value: strconv.Itoa(c.MinInsync), Rule: RuleAtLeast,
			Why: "an acknowledged write could be lost with one broker"})
	}
	if c.KeepForever && !slices.ContainsFunc(s.Settings, func(s Setting) bool { return s.Key == "retention.ms" }) {
		s.Settings = append(s.Settings, c.keep(0, "the embedded broker would delete records of a compacted topic"))
	}
	return s
}

// work are the settings of topics that hold work: losing a record loses a delivery.
func (c TopicsConfig) work(floor time.Duration, why string, size int32) []Setting {
	return []Setting{policy("delete"), c.keep(floor, why), c.unbounded(), c.size(size)}
}

func (c TopicsConfig) keep(d time.Duration, why string) Setting {
	v := ms(d)
	if c.KeepForever {
		v = "-1"
	}
	return Setting{Key: "retention.ms", Value: v, Rule: RuleAtLeast, Why: why}
}

func (c TopicsConfig) unbounded() Setting {
	return Setting{Key: "retention.bytes", Value: "-1", Rule: RuleEqual, Why: "records would be deleted by size, however young"}
}

func (c TopicsConfig) size(bytes int32) Setting {
	return Setting{Key: "max.message.bytes", Value: strconv.Itoa(int(bytes)), Rule: RuleAtLeast, Why: "a record that was accepted elsewhere would not fit with our headers"}
}

func policy(v string) Setting {
	why := "records would be deleted by age"
	switch v {
	case "delete":
		why = "compaction would delete all but the last record of a key"
	case "compact,delete":
		why = "replayed letters would stay, or letters would never be deleted"
	}
	return Setting{Key: "cleanup.policy", Value: v, Rule: RuleEqual, Why: why}
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// met reports whether have is as good as the setting.
func (s Setting) met(have string) bool {
	switch s.Rule {
	case RuleAtLeast, RuleAtMost:
		h, err1 := strconv.ParseInt(have, 10, 64)
		w, err2 := strconv.ParseInt(s.Value, 10, 64)
		if err1 != nil || err2 != nil {
			return false
		}
		if s.Rule == RuleAtMost {
			return h >= 0 && h <= w
		}
		return h < 0 || w >= 0 && h >= w
	default:
		return slices.Equal(list(have), list(s.Value))
	}
}

func list(s string) []string {
	l := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
	slices.Sort(l)
	return l
}

// create are the configurations with which the topic is made.
func (t TopicSpec) create(withOptional bool) map[string]*string {
	m := map[string]*string{}
	for _, s := range t.Settings {
		if !s.Optional || withOptional {
			m[s.Key] = &s.Value
		}
	}
	return m
}
