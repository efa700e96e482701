//go:build kafka

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/internal/testkit/realkafka"
)

// grant is one right of one principal: a kafka-acls command gives each of its
// operations on each of its resources.
type grant struct {
	principal string
	operation kadm.ACLOperation
	resource  string // Topic, Group or TransactionalId
	name      string
	prefixed  bool
}

func (g grant) String() string {
	s := g.principal + " without " + g.operation.String() + " on " + g.resource + " " + g.name
	if g.prefixed {
		s += "*"
	}
	return s
}

// namedIn reports whether a message names the right as something that is missing.
func (g grant) namedIn(text string) bool {
	// Who may alter may describe, and that is what is missing first.
	ops := []string{strings.ReplaceAll(g.operation.String(), "_", "")}
	if g.operation == kmsg.ACLOperationAlterConfigs {
		ops = append(ops, "DESCRIBECONFIGS")
	}
	return slices.ContainsFunc(ops, func(op string) bool {
		return strings.Contains(strings.ToLower(text), strings.ToLower("operation "+op+" on "+g.resource+" "+g.name))
	})
}

func (g grant) builder() *kadm.ACLBuilder {
	pattern := kadm.ACLPatternLiteral
	if g.prefixed {
		pattern = kadm.ACLPatternPrefixed
	}
	b := kadm.NewACLs().ResourcePatternType(pattern).Operations(g.operation).Allow(g.principal).AllowHosts("*")
	switch g.resource {
	case "Group":
		return b.Groups(g.name)
	case "TransactionalId":
		return b.TransactionalIDs(g.name)
	}
	return b.Topics(g.name)
}

// grantsOf reads the kafka-acls commands of a document; it knows no flag that does
// not stand in one.
func grantsOf(t *testing.T, document string) (all []grant) {
	t.Helper()
	for line := range strings.Lines(document) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "kafka-acls.sh" {
			continue
		}
		var like grant
		var ops []kadm.ACLOperation
		var resources [][2]string
		for i := 1; i < len(words); i++ {
			flag := words[i]
			if flag == "--add" {
				continue
			}
			i++
			switch value := words[i]; flag {
			case "--bootstrap-server":
			case "--allow-principal":
				like.principal = value
			case "--operation":
				op, err := kmsg.ParseACLOperation(value)
				if err != nil {
					t.Fatal(err)
				}
				ops = append(ops, op)
			case "--topic":
				resources = append(resources, [2]string{"Topic", value})
			case "--group":
				resources = append(resources, [2]string{"Group", value})
			case "--transactional-id":
				resources = append(resources, [2]string{"TransactionalId", value})
			case "--resource-pattern-type":
				like.prefixed = value == "prefixed"
			default:
				t.Fatalf("the flag %s in %s", flag, line)
			}
		}
		for _, op := range ops {
			for _, r := range resources {
				g := like
				g.operation, g.resource, g.name = op, r[0], r[1]
				all = append(all, g)
			}
		}
	}
	return all
}

// guarded is a site on a broker that allows what the document says.
type guarded struct {
	*site
	cluster *realkafka.Cluster
	acls    *kadm.Client
	grants  []grant
}

const password = "open sesame"

func newGuarded(t *testing.T) *guarded {
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	grants := grantsOf(t, string(document))
	users := map[string]string{}
	for _, g := range grants {
		users[strings.TrimPrefix(g.principal, "User:")] = password
	}
	c := realkafka.Start(t, realkafka.Config{Users: users, ACL: true})
	g := &guarded{site: bareSite(t, c.Brokers()), cluster: c, acls: kadm.NewClient(testkit.NewClient(t, c.Brokers())), grants: grants}
	if _, err := g.acls.CreateTopic(t.Context(), 1, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	testkit.AwaitTopics(t, c.Brokers(), "orders")
	for _, one := range grants {
		g.give(one)
	}
	return g
}

func (g *guarded) give(one grant) {
	g.t.Helper()
	made, err := g.acls.CreateACLs(g.t.Context(), one.builder())
	for _, r := range made {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		g.t.Fatalf("%s: %v", one, err)
	}
	g.await(one, 1)
}

// await waits until the broker goes by what was given or taken: it answers from what
// its authorizer knows.
func (g *guarded) await(one grant, want int) {
	g.t.Helper()
	testkit.Eventually(g.t, 30*time.Second, func() string {
		found, err := g.acls.DescribeACLs(g.t.Context(), one.builder())
		n := 0
		for _, r := range found {
			err = errors.Join(err, r.Err)
			n += len(r.Described)
		}
		if err != nil || n != want {
			return fmt.Sprintf("%s: %d ACLs, want %d, %v", one, n, want, err)
		}
		return ""
	})
}

func (g *guarded) take(one grant) {
	g.t.Helper()
	gone, err := g.acls.DeleteACLs(g.t.Context(), one.builder())
	n := 0
	for _, r := range gone {
		err = errors.Join(err, r.Err)
		n += len(r.Deleted)
	}
	if err != nil || n != 1 {
		g.t.Fatalf("%s: %d ACLs deleted, %v", one, n, err)
	}
	g.await(one, 0)
}

// as is the environment of a user.
func (g *guarded) as(user string, more ...string) []string {
	return g.at(g.cluster.Addrs(realkafka.SASLPlaintext), append(more, "MILENA_KAFKA_SASL_MECHANISM=SCRAM-SHA-512",
		"MILENA_KAFKA_SASL_USER="+user, "MILENA_KAFKA_SASL_PASSWORD="+password)...)
}

// process starts the process of one role.
func (g *guarded) process(role string) *serving {
	return g.serve(g.as("milena-"+role, "MILENA_ROLES="+role, "MILENA_SOURCES_TOPICS=orders"), "--initial-offset", "earliest")
}

func TestTheACLsOfTheDocumentAreEnoughAndEachIsNeeded(t *testing.T) {
	g := newGuarded(t)
	g.do(g.as("milena-topics"), "topics", "apply")
	g.areEnough()
	g.areMissedWhileRunning()
	for _, one := range g.grants {
		t.Run(one.String(), func(t *testing.T) {
			s := *g.site
			s.t = t
			g := *g
			g.site = &s
			g.take(one)
			defer g.give(one)
			g.isMissed(one)
		})
	}
	g.t = t
	for _, role := range roles {
		v := g.process(role)
		v.says("ready\n")
		v.end()
	}
}

var roles = []string{"dispatcher", "releaser", "router"}

// areEnough lets one delivery of every kind go all its way.
func (g *guarded) areEnough() {
	g.t.Helper()
	sre, producer := g.as("milena-sre"), g.as("milena-producer")
	g.receiver.Script("/flaky", testkit.Sequence(testkit.Answer{Status: 500}, testkit.Answer{Status: 204}))
	g.receiver.Script("/gone", testkit.Status(410))
	g.endpoint(sre, "shop")
	g.endpoint(sre, "flaky", "--event-types", "never", "--retry", "fast")
	g.endpoint(sre, "gone", "--event-types", "never")
	var running []*serving
	for _, role := range roles {
		v := g.process(role)
		v.says("ready\n")
		running = append(running, v)
	}
	for _, id := range []string{"shop", "flaky", "gone"} {
		g.do(producer, "send", "--endpoint", id, "--data", "{}")
	}
	testkit.Produce(g.t, testkit.NewClient(g.t, g.cluster.Brokers()), &kgo.Record{Topic: "orders", Value: []byte("{}")})
	g.received("shop", 2) // sent and routed
	g.received("flaky", 2)
	g.received("gone", 1)
	testkit.Eventually(g.t, time.Minute, func() string {
		if out := g.do(sre, "attempts", "--endpoint", "gone"); !strings.Contains(out, "gone") {
			return "no attempt of a dead delivery in " + out
		}
		return ""
	})
	g.do(sre, "topics", "plan")
	if out := g.do(sre, "dlq", "summary"); !strings.Contains(out, "gone") {
		g.t.Errorf("no dead letter in %s", out)
	}
	g.do(sre, "dlq", "replay", "--endpoint", "gone", "--include-disabled", "--yes", "--because", "a test")
	if out := g.do(sre, "runs", "list"); !strings.Contains(out, "replay") {
		g.t.Errorf("no run in %s", out)
	}
	for _, v := range running {
		v.end()
	}
}

// areMissedWhileRunning takes rights of a process that runs away: it is not ready and
// says which, and goes on when they are back.
func (g *guarded) areMissedWhileRunning() {
	g.t.Helper()
	v := g.process("dispatcher")
	v.says("ready\n")
	sent := len(g.receiver.Log.All("/shop"))
	for _, one := range g.grants {
		if one.principal != "User:milena-dispatcher" || one.name != "webhooks.attempts" && (one.name != "webhooks.deliveries" || one.operation != kmsg.ACLOperationRead) {
			continue
		}
		g.take(one)
		g.do(g.as("milena-producer"), "send", "--endpoint", "shop", "--data", "{}")
		testkit.Eventually(g.t, time.Minute, func() string {
			if text := v.readiness(); !one.namedIn(text) {
				return one.String() + ": readiness says " + text
			}
			return ""
		})
		g.give(one)
		v.says("ready\n")
		sent++
		g.received("shop", sent)
	}
	v.end()
	if n := len(g.receiver.Log.All("/shop")); n != sent {
		g.t.Errorf("%d requests, want %d: a right that comes back repeats nothing", n, sent)
	}
}

// isMissed does what needs the right until it is refused with the right's name.
func (g *guarded) isMissed(one grant) {
	g.t.Helper()
	role := strings.TrimPrefix(one.principal, "User:milena-")
	if role == "sre" && one.operation == kmsg.ACLOperationRead && one.resource == "Topic" {
		testkit.Eventually(g.t, 30*time.Second, func() string {
			res := run(g.t, "", g.as("milena-sre"), "dlq", "list")
			if res.code != exitFailed || !strings.Contains(res.err, "--operation Read --topic webhooks.dlq") || res.out != "" {
				return fmt.Sprintf("without %s dlq list says %+v", one, res)
			}
			return ""
		})
	}
	var said string
	for patience := 2 * time.Second; patience < time.Minute; patience *= 2 { // some wait so long for an answer that never comes
		if slices.Contains(roles, role) {
			v := g.process(role)
			text, refused := v.refused()
			v.stop()
			<-v.done
			if said = text; refused && one.namedIn(text) {
				return
			}
			continue
		}
		for _, args := range g.needing(role) {
			res := run(g.t, "", g.as("milena-"+role), append(args, "--timeout", patience.String())...)
			if said = res.out + res.err; res.code != exitDone && one.namedIn(said) {
				return
			}
		}
		if role == "sre" { // what a command that is refused would print
			if said = g.denied(); one.namedIn(said) {
				return
			}
		}
	}
	g.t.Errorf("no message names what is missing, the last one is:\n%s", said)
}

// denied is what the cluster refuses an SRE.
func (g *guarded) denied() string {
	g.t.Helper()
	loaded, err := config.Load(config.Options{Environ: g.as("milena-sre")})
	if err != nil {
		g.t.Fatal(err)
	}
	cl, err := loaded.KafkaConfig(slog.New(slog.DiscardHandler)).NewClient()
	if err != nil {
		g.t.Fatal(err)
	}
	defer cl.Close()
	missing, err := kafka.Denied(g.t.Context(), cl, loaded.TopicsConfig(), kafka.RoleSRE)
	if err != nil {
		g.t.Fatal(err)
	}
	return (&kafka.CheckError{Differences: missing}).Error()
}

// needing are commands of someone who is no process.
func (g *guarded) needing(role string) [][]string {
	switch role {
	case "topics":
		return [][]string{{"topics", "apply", "--retry-tiers", "0s,10s,7m", "--retry-max-age", "97h"}}
	case "producer":
		return [][]string{{"send", "--endpoint", "shop", "--data", "{}"}}
	}
	return [][]string{{"topics", "plan"}, {"endpoint", "disable", "shop"}, {"dlq", "replay", "--endpoint", "gone", "--include-disabled", "--yes"}}
}
