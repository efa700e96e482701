package kafka

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The commands name the brokers as $BROKERS: a shell that has it set can run them
// as they are, and a secured cluster needs --command-config besides.

func createCommand(s TopicSpec) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kafka-topics.sh --bootstrap-server $BROKERS --create --topic %s --partitions %d", s.Name, s.Partitions)
	if s.Replication > 0 {
		fmt.Fprintf(&b, " --replication-factor %d", s.Replication)
	}
	for _, set := range s.Settings {
		fmt.Fprintf(&b, " --config %s=%s", set.Key, set.Value)
	}
	return b.String()
}

func configCommand(topic, key, value string) string {
	if strings.Contains(value, ",") {
		value = "[" + value + "]" // how kafka-configs.sh writes a list
	}
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server $BROKERS --alter --entity-type topics --entity-name %s --add-config %s=%s", topic, key, value)
}

// right is one operation on one resource, as kafka-acls.sh names them.
type right struct{ operation, resource, name string }

func (r right) String() string { return r.resource + " " + r.name }

func (r right) command() string {
	flag := map[string]string{"Topic": "--topic ", "Group": "--group ", "TransactionalId": "--transactional-id "}[r.resource]
	return fmt.Sprintf("kafka-acls.sh --bootstrap-server $BROKERS --add --allow-principal User:$USER --operation %s %s%s", r.operation, flag, r.name)
}

func aclDifference(topic string, r right) Difference {
	return Difference{Topic: topic, Kind: KindACL, Key: r.operation, Want: r.String(), ByHand: true, Command: r.command()}
}

// human writes a time or a size beside its number.
func human(key, value string) string {
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case value == "":
		return "not set"
	case err != nil || n == 0:
		return value
	case n < 0:
		return value + " (without end)"
	case strings.HasSuffix(key, ".ms"):
		return fmt.Sprintf("%s (%s)", value, time.Duration(n)*time.Millisecond)
	}
	return value
}

func rule(r Rule, want string) string {
	if r == RuleEqual {
		return want
	}
	return string(r) + " " + want
}
