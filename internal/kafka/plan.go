package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Kind says what differs.
type Kind string

const (
	KindMissing     Kind = "missing"     // the topic is not there
	KindSetting     Kind = "setting"     // one of its configurations
	KindPartitions  Kind = "partitions"  // their number
	KindReplication Kind = "replication" // the number of replicas, or min.insync.replicas above it
	KindACL         Kind = "acl"         // we may not do what we must
)

// Difference is one thing that is not as it shall be, and what mends it.
type Difference struct {
	Topic   string `json:"topic,omitempty"`
	Kind    Kind   `json:"kind"`
	Key     string `json:"key,omitempty"`  // of a setting; the operation of an ACL
	Have    string `json:"have,omitempty"` // empty where it is missing
	Want    string `json:"want,omitempty"` // as Rule says
	Rule    Rule   `json:"rule,omitempty"` // of a setting
	Why     string `json:"why,omitempty"`
	Command string `json:"command"`           // does it with Kafka's own tools
	ByHand  bool   `json:"by_hand,omitempty"` // Apply leaves it alone, Why says why
	Advice  bool   `json:"advice,omitempty"`  // the start-up check passes with it

	spec TopicSpec
}

// String is one line without the command.
func (d Difference) String() string {
	var s string
	switch d.Kind {
	case KindMissing:
		s = fmt.Sprintf("%s is missing", d.Topic)
	case KindSetting:
		s = fmt.Sprintf("%s: %s is %s, must be %s", d.Topic, d.Key, human(d.Key, d.Have), rule(d.Rule, human(d.Key, d.Want)))
	case KindPartitions:
		s = fmt.Sprintf("%s has %s partitions, must have %s", d.Topic, d.Have, d.Want)
	case KindReplication:
		s = fmt.Sprintf("%s: %s is %s, must be %s", d.Topic, d.Key, d.Have, d.Want)
	case KindACL:
		s = fmt.Sprintf("no right: operation %s on %s", d.Key, d.Want)
	}
	if d.Why != "" {
		s += " (" + d.Why + ")"
	}
	return s
}

// Plan is what `milena topics plan` shows: the differences between what there is
// and what there shall be. An empty one means that all is well.
type Plan struct {
	Differences []Difference `json:"differences"`
	Partitions  int32        `json:"partitions"` // of deliveries as it is; 0 when it is missing
	Tiers       []string     `json:"tiers"`      // every retry topic that exists or is wanted
}

// Empty reports whether there is nothing to do. Advice counts.
func (p Plan) Empty() bool { return len(p.Differences) == 0 }

// String is for people: each difference with the command that mends it.
func (p Plan) String() string {
	if p.Empty() {
		return "all topics are as they shall be\n"
	}
	var b strings.Builder
	for _, d := range p.Differences {
		sign := "~"
		switch {
		case d.Kind == KindMissing:
			sign = "+"
		case d.Advice:
			sign = "?"
		case d.ByHand:
			sign = "!"
		}
		fmt.Fprintf(&b, "%s %s\n", sign, d)
		if d.Command != "" {
			fmt.Fprintf(&b, "    %s\n", d.Command)
		}
	}
	return b.String()
}

// Tiers are the names of all retry topics that exist, sorted. Each of them is read
// by the releaser whether or not it is configured.
func Tiers(ctx context.Context, adm *kadm.Client, c TopicsConfig) ([]string, error) {
	prefix := c.WithDefaults().Names.RetryPrefix()
	all, err := adm.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing topics: %w", err)
	}
	var out []string
	for name := range all {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// MakePlan compares the cluster with what c wants. It changes nothing. Rights that
// are missing for looking are differences, not errors; errors are those of reaching
// the cluster.
func MakePlan(ctx context.Context, adm *kadm.Client, c TopicsConfig) (Plan, error) {
	c = c.WithDefaults()
	tiers, err := Tiers(ctx, adm, c)
	if err != nil {
		return Plan{}, err
	}
	specs := DesiredTopics(c)
	for _, name := range tiers {
		if !slices.ContainsFunc(specs, func(s TopicSpec) bool { return s.Name == name }) {
			specs = append(specs, c.Tier(name))
		}
	}
	state, err := look(ctx, adm, specs)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Differences: []Difference{}}
	for _, s := range specs {
		if strings.HasPrefix(s.Name, c.Names.RetryPrefix()) {
			p.Tiers = append(p.Tiers, s.Name)
		}
	}
	p.Partitions = state[c.Names.Deliveries()].partitions
	same, equal := sameCount(specs, state)
	for _, s := range specs {
		if s.Count != CountSame || same == 0 {
			p.Differences = append(p.Differences, state[s.Name].differences(s)...)
			continue
		}
		wanted := s.Partitions
		s.Partitions = same // a topic that is missing is made like those that are there
		p.Differences = append(p.Differences, state[s.Name].differences(s)...)
		if f := state[s.Name]; f.exists && equal && f.partitions < wanted {
			p.Differences = append(p.Differences, raise(s, f.partitions, wanted))
		}
	}
	slices.SortStableFunc(p.Differences, func(a, b Difference) int { return cmp.Compare(order(a), order(b)) })
	return p, nil
}

// sameCount is the number of partitions that all topics keyed by endpoint can reach
// by raising, and whether those that exist have it already; 0 when there are none.
func sameCount(specs []TopicSpec, state map[string]found) (count int32, equal bool) {
	equal = true
	for _, s := range specs {
		f := state[s.Name]
		if s.Count != CountSame || !f.exists {
			continue
		}
		equal = equal && (count == 0 || count == f.partitions)
		count = max(count, f.partitions)
	}
	return count, equal
}

// raise is the wish for more partitions than there are, which is no mistake.
func raise(s TopicSpec, have, wanted int32) Difference {
	s.Partitions = wanted
	d, _ := found{partitions: have}.partitionDifference(s)
	d.Advice = true
	d.Why = "topics.partitions says so; it works as it is; to raise, stop every milena process first, then raise all of them"
	return d
}

// order puts first what must be mended first.
func order(d Difference) int {
	return slices.Index([]Kind{KindACL, KindMissing, KindPartitions, KindReplication, KindSetting}, d.Kind)
}

// found is one topic as it is.
type found struct {
	exists      bool
	denied      []string // operations that we may not do, of those needed for looking
	partitions  int32
	replication int // the least of all partitions
	configs     map[string]string
}

func look(ctx context.Context, adm *kadm.Client, specs []TopicSpec) (map[string]found, error) {
	names := make([]string, 0, len(specs))
	for _, s := range specs {
		names = append(names, s.Name)
	}
	details, err := detailsOf(ctx, adm, names)
	if err != nil {
		return nil, fmt.Errorf("describing topics: %w", err)
	}
	out := map[string]found{}
	var there []string
	for _, name := range names {
		d, ok := details[name]
		f := found{configs: map[string]string{}}
		switch {
		case !ok || errors.Is(d.Err, kerr.UnknownTopicOrPartition):
		case errors.Is(d.Err, kerr.TopicAuthorizationFailed):
			f.denied = append(f.denied, "Describe")
		case d.Err != nil:
			return nil, fmt.Errorf("describing topic %s: %w", name, d.Err)
		default:
			f.exists = true
			f.partitions = int32(len(d.Partitions))
			f.replication = int(^uint(0) >> 1)
			for _, p := range d.Partitions {
				f.replication = min(f.replication, len(p.Replicas))
			}
			there = append(there, name)
		}
		out[name] = f
	}
	return out, describe(ctx, adm, there, out)
}

// detailsOf is ListTopics by name. kadm gives up all of an answer when one topic is
// not authorized; then each is asked for alone, so that it can be named.
func detailsOf(ctx context.Context, adm *kadm.Client, names []string) (kadm.TopicDetails, error) {
	details, err := adm.ListTopics(ctx, names...)
	var denied *kadm.AuthError
	if !errors.As(err, &denied) {
		return details, err
	}
	if len(names) == 1 {
		return kadm.TopicDetails{names[0]: {Topic: names[0], Err: kerr.TopicAuthorizationFailed}}, nil
	}
	details = kadm.TopicDetails{}
	for _, n := range names {
		one, err := detailsOf(ctx, adm, []string{n})
		if err != nil {
			return nil, err
		}
		maps.Copy(details, one)
	}
	return details, nil
}

// describe reads the configurations, one by one where kadm would give up all.
func describe(ctx context.Context, adm *kadm.Client, names []string, out map[string]found) error {
	if len(names) == 0 {
		return nil
	}
	rs, err := adm.DescribeTopicConfigs(ctx, names...)
	var denied *kadm.AuthError
	if errors.As(err, &denied) || errors.Is(err, kerr.TopicAuthorizationFailed) {
		if len(names) > 1 {
			for _, n := range names {
				if err := describe(ctx, adm, []string{n}, out); err != nil {
					return err
				}
			}
			return nil
		}
		f := out[names[0]]
		f.denied = append(f.denied, "DescribeConfigs")
		out[names[0]] = f
		return nil
	}
	if err != nil {
		return fmt.Errorf("describing configurations of topics: %w", err)
	}
	for _, r := range rs {
		if r.Err != nil {
			return fmt.Errorf("describing the configuration of topic %s: %w", r.Name, r.Err)
		}
		for _, c := range r.Configs {
			out[r.Name].configs[c.Key] = c.MaybeValue()
		}
	}
	return nil
}

func (f found) differences(s TopicSpec) []Difference {
	var out []Difference
	for _, op := range f.denied {
		out = append(out, aclDifference(s.Name, right{op, "Topic", s.Name}))
	}
	if !f.exists {
		if len(f.denied) == 0 {
			out = append(out, Difference{Topic: s.Name, Kind: KindMissing, Why: s.Purpose, Command: createCommand(s), spec: s})
		}
		return out
	}
	if d, ok := f.partitionDifference(s); ok {
		out = append(out, d)
	}
	out = append(out, f.replicationDifferences(s)...)
	for _, set := range s.Settings {
		have, known := f.configs[set.Key]
		if slices.Contains(f.denied, "DescribeConfigs") || !known && set.Optional || set.met(have) {
			continue
		}
		d := Difference{Topic: s.Name, Kind: KindSetting, Key: set.Key, Have: have, Want: set.Value, Rule: set.Rule,
			Why: set.Why, Advice: set.Advice, Command: configCommand(s.Name, set.Key, set.Value), spec: s}
		// Mending must not delete: where deletion by age would begin, a person says so.
		if set.Key == "cleanup.policy" && slices.Contains(list(set.Value), "delete") && !slices.Contains(list(have), "delete") {
			d.ByHand = true
			d.Why += "; deletion by age would begin, so it is left to you"
		}
		out = append(out, d)
	}
	return out
}

func (f found) partitionDifference(s TopicSpec) (Difference, bool) {
	d := Difference{Topic: s.Name, Kind: KindPartitions, Have: strconv.Itoa(int(f.partitions)), Want: strconv.Itoa(int(s.Partitions)), ByHand: true, spec: s}
	switch {
	case s.Count == CountOne && f.partitions != 1:
		d.Why = "its order would be lost; partitions cannot be taken away: copy what it holds, delete it, make it again"
		return d, true
	case s.Count == CountSame && f.partitions != s.Partitions:
		d.Why = "an endpoint must have the same partition everywhere; stop every milena process first, then raise all of them"
		d.Command = fmt.Sprintf("kafka-topics.sh --bootstrap-server $BROKERS --alter --topic %s --partitions %d", s.Name, s.Partitions)
		return d, true
	}
	return d, false
}

func (f found) replicationDifferences(s TopicSpec) (out []Difference) {
	have := strconv.Itoa(f.replication)
	if s.Replication > 0 && f.replication < int(s.Replication) {
		out = append(out, Difference{Topic: s.Name, Kind: KindReplication, Key: "replication factor", Have: have, Want: strconv.Itoa(int(s.Replication)),
			ByHand: true, Why: "an acknowledged write could be lost with its brokers", spec: s,
			Command: "kafka-reassign-partitions.sh --bootstrap-server $BROKERS --reassignment-json-file FILE --execute"})
	}
	if isr, err := strconv.Atoi(f.configs["min.insync.replicas"]); err == nil && isr > f.replication {
		out = append(out, Difference{Topic: s.Name, Kind: KindReplication, Key: "min.insync.replicas", Have: strconv.Itoa(isr), Want: "at most " + have,
			ByHand: true, Why: "it has " + have + " replicas, so no write would ever be acknowledged", spec: s,
			Command: configCommand(s.Name, "min.insync.replicas", have)})
	}
	return out
}
