package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Role is a part of a process, or someone who uses the command line, with rights of
// its own. docs/operations.md has them as kafka-acls commands, and a test holds the
// two together.
type Role string

const (
	RoleDispatcher Role = "dispatcher"
	RoleReleaser   Role = "releaser"
	RoleRouter     Role = "router"
	RoleProducer   Role = "producer" // writes deliveries, by milena send or a client of its own
	RoleRun        Role = "run"      // replays and discards dead letters; a part of RoleSRE
	RoleSRE        Role = "sre"      // everything else that the command line does, but for making topics
)

// rightsOf is what a role needs on the cluster. Describe comes with Read and Write;
// DescribeConfigs is what the start-up check itself needs, and a plan names it when
// it is missing.
func rightsOf(c TopicsConfig, role Role, tiers []string) []right {
	n := c.Names
	var read, write []string
	switch role {
	case RoleDispatcher:
		read = []string{n.Deliveries(), n.Hold(), n.Health(), n.Endpoints(), n.DLQ()} // dlq: to count what is open
		// deliveries: what a producer put into the wrong partition is forwarded
		write = append([]string{n.Deliveries(), n.Hold(), n.DLQ(), n.Attempts(), n.Health(), n.Notices()}, tiers...)
	case RoleReleaser:
		read = append([]string{n.Endpoints()}, tiers...)
		write = append([]string{n.Deliveries(), n.DLQ()}, tiers...)
	case RoleRouter:
		read = append([]string{n.Endpoints()}, c.Sources...)
		write = []string{n.Deliveries(), n.DLQ()}
	case RoleProducer:
		write = []string{n.Deliveries()}
	case RoleRun:
		read = []string{n.DLQ(), n.Endpoints(), n.Runs()}
		write = []string{n.Deliveries(), n.DLQ(), n.Runs(), n.Audit()}
	case RoleSRE:
		read = append([]string{n.Deliveries(), n.Hold(), n.DLQ(), n.Attempts(), n.Endpoints(), n.Health(), n.Runs(), n.Notices(), n.Audit()}, tiers...)
		write = []string{n.Deliveries(), n.DLQ(), n.Endpoints(), n.Runs(), n.Audit()}
	}
	var out []right
	for _, t := range read {
		out = append(out, right{"Read", "Topic", t})
	}
	for _, t := range write {
		out = append(out, right{"Write", "Topic", t})
	}
	switch role {
	case RoleProducer:
	case RoleRun:
		out = append(out, right{"Write", "TransactionalId", n.RegistryTransactionalID()})
	case RoleSRE:
		for _, of := range []Role{RoleDispatcher, RoleReleaser, RoleRouter} {
			out = append(out, right{"Describe", "Group", n.Group(string(of))})
		}
		out = append(out, right{"Write", "TransactionalId", n.RegistryTransactionalID()})
	default:
		out = append(out, right{"Read", "Group", n.Group(string(role))})
	}
	return out
}

// Denied lists what the cluster does not allow us of what the roles need, each with
// the command that grants it. A cluster without an authorizer allows everything.
func Denied(ctx context.Context, cl *kgo.Client, c TopicsConfig, roles ...Role) ([]Difference, error) {
	c = c.WithDefaults()
	tiers, err := Tiers(ctx, kadm.NewClient(cl), c)
	if err != nil {
		return nil, err
	}
	if len(tiers) == 0 { // those that we may not even see
		for _, d := range c.Tiers {
			tiers = append(tiers, c.Names.Retry(d))
		}
	}
	return deniedOf(ctx, cl, c, tiers, roles)
}

func deniedOf(ctx context.Context, cl *kgo.Client, c TopicsConfig, tiers []string, roles []Role) (out []Difference, err error) {
	var rights []right
	for _, role := range roles {
		rights = append(rights, rightsOf(c, role, tiers)...)
	}
	denied, err := missingRights(ctx, cl, rights)
	for _, d := range denied {
		out = append(out, aclDifference(topicOf(d), d))
	}
	return out, err
}

// refusals are what a cluster answers for want of a right, by what the right is on.
var refusals = map[string]error{
	"Topic": kerr.TopicAuthorizationFailed, "Group": kerr.GroupAuthorizationFailed,
	"Cluster": kerr.ClusterAuthorizationFailed, "TransactionalId": kerr.TransactionalIDAuthorizationFailed,
}

// IsDenied reports whether the cluster refused us for want of a right.
func IsDenied(err error) bool {
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// RightError is a refusal for want of a right, with the command that grants it.
// Operation and resource are named as kafka-acls.sh names them (Read, Topic,
// webhooks.deliveries).
type RightError struct {
	Operation, Resource, Name string
	Err                       error
}

func (e *RightError) Error() string {
	r := right{e.Operation, e.Resource, e.Name}
	return fmt.Sprintf("no right: operation %s on %s: %v; an administrator grants it: %s", e.Operation, r, e.Err, r.command())
}

func (e *RightError) Unwrap() error { return e.Err }

// NameRight makes a *RightError of a refusal on that kind of resource, unless it is one
// already; any other error it returns as it is.
func NameRight(err error, operation, resource, name string) error {
	if _, named := errors.AsType[*RightError](err); named || err == nil || !errors.Is(err, refusals[resource]) {
		return err
	}
	return &RightError{Operation: operation, Resource: resource, Name: name, Err: err}
}
