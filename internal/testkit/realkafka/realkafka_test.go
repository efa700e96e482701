//go:build kafka

package realkafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/milena-project/milena/internal/testkit"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func createTopic(t *testing.T, c *Cluster, name string, replicas int16) {
	t.Helper()
	configs := map[string]*string{"cleanup.policy": kadm.StringPtr("compact,delete")}
	if _, err := kadm.NewClient(testkit.NewClient(t, c.Brokers())).CreateTopic(within(t, time.Minute), 3, replicas, configs, name); err != nil {
		t.Fatalf("create topic: %v", err)
	}
	testkit.AwaitTopics(t, c.Brokers(), name)
}

// roundTrip writes one record and reads it back through a consumer group,
// which needs the group coordinator too.
func roundTrip(t *testing.T, brokers []string, topic string, opts ...kgo.Opt) {
	t.Helper()
	cl := testkit.NewClient(t, brokers, append(opts, kgo.ConsumeTopics(topic), kgo.ConsumerGroup("g-"+topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	testkit.Produce(t, cl, &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte("v")})
	fs := cl.PollFetches(within(t, time.Minute))
	if err := fs.Err(); err != nil || fs.NumRecords() == 0 {
		t.Fatalf("%d records: %v", fs.NumRecords(), err)
	}
	if err := cl.CommitUncommittedOffsets(within(t, time.Minute)); err != nil {
		t.Fatalf("commit: %v", err)
	}
	cl.Close()
}

func TestSharedBrokerServesAGroup(t *testing.T) {
	c := Shared(t)
	createTopic(t, c, "shared", 1)
	roundTrip(t, c.Brokers(), "shared")
	if Shared(t) != c {
		t.Error("a second cluster was started")
	}
}

func TestKafka3ServesAGroupInKRaftMode(t *testing.T) {
	c := Start(t, Config{Version: Version3})
	createTopic(t, c, "three", 1)
	roundTrip(t, c.Brokers(), "three")
}

func TestThreeBrokersSurviveKillFreezeAndRestart(t *testing.T) {
	c := Start(t, Config{Brokers: 3})
	cl := testkit.NewClient(t, c.Brokers())
	createTopic(t, c, "chaos", 3)
	if err := c.Kill(0); err != nil {
		t.Fatal(err)
	}
	if c.Running(0) {
		t.Error("a killed broker runs")
	}
	if conn, err := net.Dial("tcp", c.Brokers()[0]); err == nil {
		_ = conn.Close()
		t.Error("a killed broker accepts connections")
	}
	if err := c.Freeze(0); !errors.Is(err, errDown) {
		t.Errorf("freezing a dead broker: %v", err)
	}
	testkit.Produce(t, cl, &kgo.Record{Topic: "chaos", Key: []byte("k"), Value: []byte("two are enough")})
	if err := c.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Freeze(1); err != nil {
		t.Fatal(err)
	}
	testkit.Produce(t, cl, &kgo.Record{Topic: "chaos", Key: []byte("k"), Value: []byte("one is frozen")})
	if err := c.Thaw(1); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(t.Context(), 2); err != nil { // a controlled one
		t.Fatal(err)
	}
	roundTrip(t, c.Brokers(), "chaos")
}

func TestListenersAskForWhatTheyAreSetUpFor(t *testing.T) {
	ca := testkit.NewAuthority(t)
	client := ca.Issue(t, testkit.CertSpec{Name: "milena"})
	c := Start(t, Config{
		Users: map[string]string{"alice": "open sesame", "bob": "b"},
		TLS:   &TLS{Authority: ca, Certificate: ca.Issue(t, testkit.CertSpec{}), RequireClient: true},
		ACL:   true,
	})
	admin := kadm.NewClient(testkit.NewClient(t, c.Brokers()))
	createTopic(t, c, "secured", 1)
	rights := kadm.NewACLs().Topics("secured").Groups("g-secured").Operations(kadm.OpRead, kadm.OpWrite, kadm.OpDescribe).
		ResourcePatternType(kadm.ACLPatternLiteral).Allow("User:alice", "User:CN=milena").AllowHosts()
	if _, err := admin.CreateACLs(t.Context(), rights); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 30*time.Second, func() string { // the broker learns of them a little later
		known, err := admin.DescribeACLs(t.Context(), rights)
		n := 0
		for _, r := range known {
			err = errors.Join(err, r.Err)
			n += len(r.Described)
		}
		if err != nil || n != 12 {
			return fmt.Sprintf("%d of 12 rights are known, %v", n, err)
		}
		return ""
	})
	open := &tls.Config{RootCAs: ca.Pool()}
	proved := &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{client.TLS}}
	alice := scram.Auth{User: "alice", Pass: "open sesame"}
	for _, tc := range []struct {
		name string
		at   Listener
		tls  *tls.Config
		sasl sasl.Mechanism
	}{
		{"scram-512", SASLPlaintext, nil, alice.AsSha512Mechanism()},
		{"scram-256", SASLPlaintext, nil, alice.AsSha256Mechanism()},
		{"plain over TLS", SASLSSL, open, plain.Auth{User: "alice", Pass: "open sesame"}.AsMechanism()},
		{"client certificate", SSL, proved, nil},
		{"token", SASLPlaintext, nil, oauth.Auth{Token: unsecuredToken(t, "alice")}.AsMechanism()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var opts []kgo.Opt
			if tc.tls != nil {
				opts = append(opts, kgo.DialTLSConfig(tc.tls))
			}
			if tc.sasl != nil {
				opts = append(opts, kgo.SASL(tc.sasl))
			}
			roundTrip(t, c.Addrs(tc.at), "secured", opts...)
		})
	}
	t.Run("who has no ACL may not", func(t *testing.T) {
		cl := testkit.NewClient(t, c.Addrs(SASLPlaintext), kgo.SASL(scram.Auth{User: "bob", Pass: "b"}.AsSha512Mechanism()))
		err := cl.ProduceSync(within(t, time.Minute), &kgo.Record{Topic: "secured"}).FirstErr()
		if !errors.Is(err, kerr.TopicAuthorizationFailed) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a wrong password does not get in", func(t *testing.T) {
		cl := testkit.NewClient(t, c.Addrs(SASLPlaintext), kgo.SASL(scram.Auth{User: "alice", Pass: "x"}.AsSha512Mechanism()))
		if err := cl.Ping(within(t, time.Minute)); !errors.Is(err, kerr.SaslAuthenticationFailed) {
			t.Errorf("got %v", err)
		}
	})
}

// A child process of the test starts a broker and dies; the broker must follow.
func TestBrokersDieWithTheTestProcess(t *testing.T) {
	if os.Getenv("MILENA_REALKAFKA_DIE") == "1" {
		c := Start(t, Config{})
		println("pid", c.brokers[0].cmd.Process.Pid, c.dir)
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {}
	}
	Shared(t) // skips where there is no Kafka
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBrokersDieWithTheTestProcess$")
	cmd.Env = append(os.Environ(), "MILENA_REALKAFKA_DIE=1", "MILENA_TEST_BROKERS=")
	out, _ := cmd.CombinedOutput()
	_, rest, ok := strings.Cut(string(out), "pid ")
	if !ok {
		t.Fatalf("the child said %s", out)
	}
	fields := strings.Fields(rest)
	t.Cleanup(func() { _ = os.RemoveAll(fields[1]) })
	testkit.Eventually(t, 10*time.Second, func() string {
		b, err := os.ReadFile("/proc/" + fields[0] + "/cmdline")
		if err == nil && strings.Contains(string(b), "kafka.Kafka") {
			return "the broker of a dead test runs"
		}
		return ""
	})
}
