package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CheckError is why a process does not start: every difference at once, each with
// the command that mends it.
type CheckError struct{ Differences []Difference }

func (e *CheckError) Error() string {
	var b strings.Builder
	var missing []string // of Milena's own
	apply := false
	for _, d := range e.Differences {
		apply = apply || !d.ByHand
		if d.Kind == KindMissing && !d.ByHand {
			missing = append(missing, d.Topic)
			continue
		}
		fmt.Fprintf(&b, "\n  - %s", d)
		if d.Command != "" {
			fmt.Fprintf(&b, "\n      %s", d.Command)
		}
	}
	head := "Kafka is not set up as Milena needs it"
	if apply {
		head += "; `milena topics apply` makes topics and mends settings, `milena topics plan` shows how"
	}
	return head + ":" + missingText(missing) + b.String()
}

// namedMissing is how many missing topics are named: on a cluster where nothing was
// made yet it is all of them, and one command makes them.
const namedMissing = 3

func missingText(topics []string) string {
	switch n := len(topics); {
	case n == 0:
		return ""
	case n == 1:
		return "\n  - " + topics[0] + " is missing"
	case n <= namedMissing+1:
		return fmt.Sprintf("\n  - %d topics are missing: %s", n, strings.Join(topics, ", "))
	default:
		return fmt.Sprintf("\n  - %d topics are missing: %s and %d others", n, strings.Join(topics[:namedMissing], ", "), n-namedMissing)
	}
}

// Checked is what a check that passed has learned.
type Checked struct {
	Partitions int32    // of deliveries, hold, dlq, attempts and health
	Tiers      []string // every retry topic that exists
}

// Check is the start-up check of a process with these roles: topics, their
// settings, and the rights that the roles need. What differs is a *CheckError; any
// other error means that the cluster could not be asked.
func Check(ctx context.Context, cl *kgo.Client, c TopicsConfig, roles ...Role) (Checked, error) {
	c = c.WithDefaults()
	adm := kadm.NewClient(cl)
	plan, err := MakePlan(ctx, adm, c)
	if err != nil {
		return Checked{}, err
	}
	bad, err := deniedOf(ctx, cl, c, plan.Tiers, roles)
	if err != nil {
		return Checked{}, err
	}
	if slices.Contains(roles, RoleRouter) {
		missing, err := missingSources(ctx, adm, c.Sources)
		if err != nil {
			return Checked{}, err
		}
		bad = append(bad, missing...)
	}
	for _, d := range plan.Differences {
		if !d.Advice {
			bad = append(bad, d)
		}
	}
	bad = slices.CompactFunc(bad, func(a, b Difference) bool {
		return a.Kind == b.Kind && a.Topic == b.Topic && a.Key == b.Key && a.Want == b.Want
	})
	if len(bad) > 0 {
		return Checked{}, &CheckError{Differences: bad}
	}
	return Checked{Partitions: plan.Partitions, Tiers: plan.Tiers}, nil
}

// missingSources are the sources that are not there, most likely because a name is
// misspelt. One that we may not see is a missing right.
func missingSources(ctx context.Context, adm *kadm.Client, sources []string) (bad []Difference, err error) {
	if len(sources) == 0 {
		return nil, nil
	}
	details, err := detailsOf(ctx, adm, sources)
	if err != nil {
		return nil, fmt.Errorf("describing topics: %w", err)
	}
	for _, name := range sources {
		if d, ok := details[name]; !ok || errors.Is(d.Err, kerr.UnknownTopicOrPartition) {
			bad = append(bad, Difference{Topic: name, Kind: KindMissing, ByHand: true,
				Why: "sources.topics names it; Milena makes no topics of others"})
		}
	}
	return bad, nil
}

func topicOf(r right) string {
	if r.resource == "Topic" {
		return r.name
	}
	return ""
}

// missingRights asks the brokers what we may do. A broker without an authorizer
// allows everything; one that does not tell (before Kafka 2.3) is believed to.
func missingRights(ctx context.Context, cl *kgo.Client, rights []right) ([]right, error) {
	var topics, groups, ids []string
	for _, r := range rights {
		switch r.resource {
		case "Topic":
			topics = append(topics, r.name)
		case "Group":
			groups = append(groups, r.name)
		case "TransactionalId":
			ids = append(ids, r.name)
		}
	}
	may := map[string][]kadm.ACLOperation{} // by resource and name; absent: not known
	if err := topicRights(ctx, cl, distinct(topics), may); err != nil {
		return nil, err
	}
	if err := groupRights(ctx, cl, distinct(groups), may); err != nil {
		return nil, err
	}
	transactionRights(ctx, cl, distinct(ids), may)
	var out []right
	for _, r := range rights {
		ops, known := may[r.String()]
		if known && !slices.ContainsFunc(ops, func(op kadm.ACLOperation) bool { return strings.EqualFold(operationName(op), r.operation) }) && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out, nil
}

func topicRights(ctx context.Context, cl *kgo.Client, names []string, may map[string][]kadm.ACLOperation) error {
	if len(names) == 0 {
		return nil
	}
	details, err := detailsOf(kadm.WithAuthorizedOps(ctx), kadm.NewClient(cl), names)
	if err != nil {
		return fmt.Errorf("asking for rights on topics: %w", err)
	}
	for name, d := range details {
		key := right{resource: "Topic", name: name}.String()
		switch {
		case errors.Is(d.Err, kerr.TopicAuthorizationFailed):
			may[key] = nil
		case d.Err == nil && len(d.AuthorizedOperations) > 0:
			may[key] = d.AuthorizedOperations
		}
	}
	return nil
}

// groupRights asks for groups. Kafka 4 answers GROUP_ID_NOT_FOUND, without rights,
// for a group that nobody has joined yet; then only the right to look is known. On
// a cluster that never had a group the coordinator is just being made; then nothing
// is, and joining will tell.
func groupRights(ctx context.Context, cl *kgo.Client, names []string, may map[string][]kadm.ACLOperation) error {
	for _, name := range names {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{name}
		req.IncludeAuthorizedOperations = true
		key := right{resource: "Group", name: name}.String()
		resp, err := req.RequestWith(ctx, cl)
		switch {
		case errors.Is(err, kerr.GroupAuthorizationFailed): // of the search for the coordinator
			may[key] = nil
			continue
		case errors.Is(err, kerr.CoordinatorNotAvailable), errors.Is(err, kerr.CoordinatorLoadInProgress):
			continue
		case err != nil:
			return fmt.Errorf("asking for rights on group %s: %w", name, err)
		}
		for _, g := range resp.Groups {
			ops := kadm.DecodeACLOperations(g.AuthorizedOperations)
			switch {
			case errors.Is(kerr.ErrorForCode(g.ErrorCode), kerr.GroupAuthorizationFailed):
				may[key] = nil
			case g.ErrorCode == 0 && len(ops) > 0:
				may[key] = ops
			}
		}
	}
	return nil
}

// transactionRights asks about transactional ids. Only a refusal says something: no
// request tells what we may do with one.
func transactionRights(ctx context.Context, cl *kgo.Client, ids []string, may map[string][]kadm.ACLOperation) {
	for _, id := range ids {
		req := kmsg.NewPtrDescribeTransactionsRequest()
		req.TransactionalIDs = []string{id}
		resp, err := req.RequestWith(ctx, cl)
		denied := errors.Is(err, kerr.TransactionalIDAuthorizationFailed) // of the search for the coordinator
		if err == nil {
			for _, t := range resp.TransactionStates {
				denied = denied || errors.Is(kerr.ErrorForCode(t.ErrorCode), kerr.TransactionalIDAuthorizationFailed)
			}
		}
		if denied {
			may[right{resource: "TransactionalId", name: id}.String()] = nil
		}
	}
}

func distinct(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// operationName writes an operation as kafka-acls.sh does, without underscores.
func operationName(op kadm.ACLOperation) string { return strings.ReplaceAll(op.String(), "_", "") }
