package kafka

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func newClient(t testing.TB, cfg Config) (*kgo.Client, *kadm.Client) {
	t.Helper()
	cl, err := cfg.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl, kadm.NewClient(cl)
}

func plan(t testing.TB, adm *kadm.Client, c TopicsConfig) Plan {
	t.Helper()
	p, err := MakePlan(within(t, time.Minute), adm, c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func apply(t testing.TB, adm *kadm.Client, c TopicsConfig) Applied {
	t.Helper()
	a, err := plan(t, adm, c).Apply(within(t, time.Minute), adm)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// find is the one difference of a topic and key.
func find(t testing.TB, ds []Difference, topic, key string) Difference {
	t.Helper()
	for _, d := range ds {
		if d.Topic == topic && d.Key == key {
			return d
		}
	}
	t.Fatalf("no difference of %s %s in %v", topic, key, ds)
	return Difference{}
}

func TestApplyMakesEverythingOnceAndTheCheckPasses(t *testing.T) {
	c := newCluster(t)
	cl, adm := newClient(t, configFor(c))
	before := plan(t, adm, TopicsConfig{})
	if n := len(before.Differences); n != 18 || before.Differences[0].Topic != "webhooks.deliveries" {
		t.Fatalf("%d differences, first %v", n, before.Differences)
	}
	if !strings.Contains(before.String(), "kafka-topics.sh --bootstrap-server $BROKERS --create --topic webhooks.retry.30m --partitions 3 --config cleanup.policy=delete --config retention.ms=950400000") {
		t.Errorf("no command for a tier:\n%s", before)
	}
	_, err := Check(within(t, time.Minute), cl, TopicsConfig{})
	if bad, ok := errors.AsType[*CheckError](err); !ok || len(bad.Differences) != 18 {
		t.Errorf("check of an empty cluster: %v", err)
	} else if text := err.Error(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "`milena topics apply`") || !strings.Contains(text, "18 topics are missing: webhooks.deliveries, ") {
		t.Errorf("18 missing topics are more than one line, or the command does not stand before it: %s", text)
	}
	if a := apply(t, adm, TopicsConfig{}); !a.Complete() || len(a) != 18 {
		t.Fatalf("applied:\n%s", a)
	}
	if p := plan(t, adm, TopicsConfig{}); !p.Empty() {
		t.Fatalf("after apply:\n%s", p)
	}
	got, err := Check(within(t, time.Minute), cl, TopicsConfig{}, RoleDispatcher, RoleReleaser, RoleRouter)
	if err != nil || got.Partitions != 12 || len(got.Tiers) != 9 {
		t.Fatalf("check after apply: %+v, %v", got, err)
	}
	rs, err := adm.DescribeTopicConfigs(within(t, time.Minute), "webhooks.dlq")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, cfg := range rs[0].Configs {
		have[cfg.Key] = cfg.MaybeValue()
	}
	for k, want := range map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "2592000000", "segment.ms": "86400000", "delete.retention.ms": "86400000",
		"max.message.bytes": "1114112", "message.timestamp.type": "LogAppendTime"} {
		if have[k] != want {
			t.Errorf("dlq %s = %s, want %s", k, have[k], want)
		}
	}
}

func TestKeepForeverNeverDeletesByAge(t *testing.T) {
	for _, s := range DesiredTopics(TopicsConfig{KeepForever: true}) {
		ok := false
		for _, set := range s.Settings {
			ok = ok || set.Key == "retention.ms" && set.Value == "-1"
		}
		if !ok {
			t.Errorf("%s has no retention.ms=-1", s.Name)
		}
	}
}

func TestApplyRaisesButNeverLowers(t *testing.T) {
	c := newCluster(t)
	_, adm := newClient(t, configFor(c))
	apply(t, adm, TopicsConfig{})
	set := func(topic, key, value string) {
		rs, err := adm.AlterTopicConfigs(within(t, time.Minute), []kadm.AlterConfig{{Name: key, Value: &value}}, topic)
		if err != nil || rs[0].Err != nil {
			t.Fatal(err, rs)
		}
	}
	set("webhooks.retry.24h", "retention.ms", "3600000")
	set("webhooks.hold", "retention.ms", "-1")
	set("webhooks.attempts", "retention.ms", "99999999999")
	set("webhooks.dlq", "cleanup.policy", "delete,compact") // the order is no difference
	set("webhooks.endpoints", "cleanup.policy", "delete")
	set("webhooks.hold", "cleanup.policy", "compact")
	set("webhooks.hold", "retention.bytes", "1000000")
	p := plan(t, adm, TopicsConfig{})
	if len(p.Differences) != 4 {
		t.Fatalf("plan:\n%s", p)
	}
	d := find(t, p.Differences, "webhooks.retry.24h", "retention.ms")
	if s := d.String(); !strings.Contains(s, "3600000 (1h0m0s), must be at least 950400000 (264h0m0s)") {
		t.Errorf("%s", s)
	}
	a := apply(t, adm, TopicsConfig{})
	if a.Complete() {
		t.Errorf("complete, although deletion by age was to begin:\n%s", a)
	}
	p = plan(t, adm, TopicsConfig{})
	if len(p.Differences) != 1 || !find(t, p.Differences, "webhooks.hold", "cleanup.policy").ByHand {
		t.Errorf("after apply:\n%s", p)
	}
}

func TestPartitionsMustBeThoseOfDeliveries(t *testing.T) {
	c := newCluster(t)
	cl, adm := newClient(t, configFor(c))
	for topic, n := range map[string]int32{"webhooks.deliveries": 6, "webhooks.hold": 8, "webhooks.endpoints": 2} {
		if err := c.CreateTopic(topic, n, nil); err != nil {
			t.Fatal(err)
		}
	}
	apply(t, adm, TopicsConfig{})
	_, err := Check(within(t, time.Minute), cl, TopicsConfig{})
	var bad *CheckError
	if !errors.As(err, &bad) || len(bad.Differences) != 2 {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"webhooks.deliveries has 6 partitions, must have 8",
		"kafka-topics.sh --bootstrap-server $BROKERS --alter --topic webhooks.deliveries --partitions 8",
		"webhooks.endpoints has 2 partitions, must have 1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	// what was made meanwhile was made with the count of those that were there
	if d, err := adm.ListTopics(within(t, time.Minute), "webhooks.dlq"); err != nil || len(d["webhooks.dlq"].Partitions) != 8 {
		t.Errorf("dlq: %v %v", d, err)
	}
}

func TestMorePartitionsAreAWishAndNoMistake(t *testing.T) {
	c := newCluster(t)
	cl, adm := newClient(t, configFor(c))
	apply(t, adm, TopicsConfig{Partitions: 4})
	p := plan(t, adm, TopicsConfig{Partitions: 8})
	if len(p.Differences) != 5 {
		t.Fatalf("%s", p)
	}
	for _, d := range p.Differences {
		if !d.Advice || !d.ByHand || d.Have != "4" || d.Want != "8" || !strings.HasSuffix(d.Command, "--partitions 8") {
			t.Errorf("%+v", d)
		}
	}
	if got, err := Check(within(t, time.Minute), cl, TopicsConfig{Partitions: 8}); err != nil || got.Partitions != 4 {
		t.Errorf("%+v %v", got, err)
	}
	if p := plan(t, adm, TopicsConfig{Partitions: 2}); !p.Empty() {
		t.Errorf("fewer partitions are wanted:\n%s", p)
	}
}

func TestAClusterThatDoesNotAnswerIsNoDifference(t *testing.T) {
	c := newCluster(t)
	cfg := configFor(c)
	c.Close()
	cl, _ := newClient(t, cfg)
	_, err := Check(within(t, 200*time.Millisecond), cl, TopicsConfig{})
	var bad *CheckError
	if err == nil || errors.As(err, &bad) {
		t.Fatalf("%v", err)
	}
}

func TestSettingsAreMetByWhatIsAsGood(t *testing.T) {
	for _, c := range []struct {
		rule       Rule
		want, have string
		met        bool
	}{
		{RuleAtLeast, "100", "100", true}, {RuleAtLeast, "100", "99", false}, {RuleAtLeast, "100", "-1", true},
		{RuleAtLeast, "-1", "100", false}, {RuleAtLeast, "-1", "-1", true}, {RuleAtLeast, "100", "", false},
		{RuleAtMost, "100", "100", true}, {RuleAtMost, "100", "101", false}, {RuleAtMost, "100", "-1", false},
		{RuleEqual, "compact,delete", "delete, compact", true}, {RuleEqual, "delete", "compact,delete", false}, {RuleEqual, "LogAppendTime", "CreateTime", false},
	} {
		if got := (Setting{Value: c.want, Rule: c.rule}).met(c.have); got != c.met {
			t.Errorf("%s %s met by %q: %v", c.rule, c.want, c.have, got)
		}
	}
}

func TestEveryTierThatExistsIsSeen(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(5, "webhooks.retry.90m"))
	cl, adm := newClient(t, configFor(c))
	cfg := TopicsConfig{Tiers: []time.Duration{0, 10 * time.Second}}
	p := plan(t, adm, cfg)
	if strings.Join(p.Tiers, " ") != "webhooks.retry.0s webhooks.retry.10s webhooks.retry.90m" {
		t.Errorf("tiers %v", p.Tiers)
	}
	find(t, p.Differences, "webhooks.retry.90m", "retention.ms") // its records must live as long
	apply(t, adm, cfg)
	got, err := Check(within(t, time.Minute), cl, cfg)
	if err != nil || len(got.Tiers) != 3 {
		t.Errorf("%+v %v", got, err)
	}
}

func TestReplicationIsChecked(t *testing.T) {
	c := newCluster(t)
	_, adm := newClient(t, configFor(c))
	apply(t, adm, TopicsConfig{})
	v := "2"
	if _, err := adm.AlterTopicConfigs(within(t, time.Minute), []kadm.AlterConfig{{Name: "min.insync.replicas", Value: &v}}, "webhooks.hold"); err != nil {
		t.Fatal(err)
	}
	p := plan(t, adm, TopicsConfig{Replication: 3})
	d := find(t, p.Differences, "webhooks.hold", "min.insync.replicas")
	if !d.ByHand || !strings.Contains(d.String(), "no write would ever be acknowledged") {
		t.Errorf("%+v", d)
	}
	if d := find(t, p.Differences, "webhooks.dlq", "replication factor"); d.Have != "1" || d.Want != "3" || !d.ByHand {
		t.Errorf("%+v", d)
	}
}

func TestForbiddenCreationPrintsTheCommands(t *testing.T) {
	c := newCluster(t)
	_, adm := newClient(t, configFor(c))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "webhooks.hold", Err: kerr.TopicAuthorizationFailed, Count: -1})
	a := apply(t, adm, TopicsConfig{})
	if a.Complete() {
		t.Fatal("complete")
	}
	for _, r := range a {
		if want := map[bool]Outcome{true: Forbidden, false: Done}[r.Topic == "webhooks.hold"]; r.Outcome != want {
			t.Errorf("%s: %s %s", r.Topic, r.Outcome, r.Err)
		}
	}
	if !strings.Contains(a.String(), "kafka-topics.sh --bootstrap-server $BROKERS --create --topic webhooks.hold --partitions 12") {
		t.Errorf("no command:\n%s", a)
	}
	data, err := json.Marshal(a)
	if err != nil || !strings.Contains(string(data), `"outcome":"forbidden"`) {
		t.Errorf("%s %v", data, err)
	}
}

func TestMissingRightsAreNamedWithOperationAndResource(t *testing.T) {
	allow := func(typ kmsg.ACLResourceType, name string, prefixed bool, op kmsg.ACLOperation) kfake.ACL {
		p := kmsg.ACLResourcePatternTypeLiteral
		if prefixed {
			p = kmsg.ACLResourcePatternTypePrefixed
		}
		return kfake.ACL{Resource: typ, Name: name, Pattern: p, Operation: op, Allow: true}
	}
	topic, group := kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeGroup
	deny := allow(topic, "webhooks.dlq", false, kmsg.ACLOperationWrite)
	deny.Allow = false
	denyConfigs := allow(topic, "webhooks.audit", false, kmsg.ACLOperationDescribeConfigs)
	denyConfigs.Allow = false
	denyDescribe := allow(topic, "webhooks.notices", false, kmsg.ACLOperationDescribe)
	denyDescribe.Allow = false
	c := newCluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "a"),
		kfake.User("PLAIN", "milena", "m",
			allow(topic, "webhooks.", true, kmsg.ACLOperationRead), allow(topic, "webhooks.", true, kmsg.ACLOperationWrite),
			allow(topic, "webhooks.", true, kmsg.ACLOperationDescribeConfigs),
			allow(group, "webhooks.releaser", false, kmsg.ACLOperationRead),
			allow(group, "webhooks.dispatcher", false, kmsg.ACLOperationDescribe),
			deny, denyConfigs, denyDescribe))
	as := func(user, password string) Config {
		cfg := configFor(c)
		cfg.SASL = SASLConfig{Mechanism: "PLAIN", User: user, Password: password}
		return cfg
	}
	adminClient, admin := newClient(t, as("admin", "a"))
	apply(t, admin, TopicsConfig{})
	if _, err := Check(within(t, time.Minute), adminClient, TopicsConfig{}, RoleDispatcher, RoleReleaser, RoleRouter); err != nil {
		t.Fatal(err)
	}
	cl, _ := newClient(t, as("milena", "m"))
	_, err := Check(within(t, time.Minute), cl, TopicsConfig{}, RoleDispatcher, RoleReleaser)
	var bad *CheckError
	if !errors.As(err, &bad) {
		t.Fatal(err)
	}
	for _, want := range []string{
		"operation Write on Topic webhooks.dlq",
		"kafka-acls.sh --bootstrap-server $BROKERS --add --allow-principal User:$USER --operation Write --topic webhooks.dlq",
		"operation DescribeConfigs on Topic webhooks.audit",
		"operation Describe on Topic webhooks.notices",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "webhooks.attempts") || strings.Contains(err.Error(), "Group webhooks.releaser") {
		t.Errorf("names what is allowed:\n%v", err)
	}
	// A client of its own: the other one remembers that notices was refused.
	cl, _ = newClient(t, as("milena", "m"))
	_, err = Check(within(t, time.Minute), cl, TopicsConfig{Sources: []string{"orders"}}, RoleRouter)
	if !errors.As(err, &bad) || !strings.Contains(err.Error(), "operation Read on Topic orders") || !strings.Contains(err.Error(), "operation Read on Group webhooks.router") {
		t.Errorf("a source that we may not read: %v", err)
	}
	_, err = Check(within(t, time.Minute), adminClient, TopicsConfig{Sources: []string{"orderz"}}, RoleRouter)
	if !errors.As(err, &bad) || !strings.Contains(err.Error(), "orderz is missing (sources.topics names it") {
		t.Errorf("a source that is not there: %v", err)
	}
}
