package realkafka

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/milena-project/milena/internal/testkit"
)

// Config says what kind of cluster a test needs. The zero value is one plain
// broker of the version that the environment names.
type Config struct {
	// Brokers is 1 or 3, 1 by default. Three mean replication factor 3 and
	// min.insync.replicas=2.
	Brokers int
	// Version is a published version of Apache Kafka; by default that of
	// MILENA_TEST_KAFKA_VERSION, else DefaultVersion.
	Version string
	// Properties are added to every broker's, and win over them.
	Properties map[string]string
	// Users, name to password, make a SASL_PLAINTEXT listener that takes PLAIN,
	// SCRAM-SHA-256, SCRAM-SHA-512 and, with any unsecured token, OAUTHBEARER.
	Users map[string]string
	// TLS makes an SSL listener, and a SASL_SSL one when there are Users.
	TLS *TLS
	// ACL switches the standard authorizer on: who has no ACL may do nothing.
	// The plaintext listener, which brokers use among themselves, is a super user.
	ACL bool
}

// TLS says how the brokers' TLS listeners prove themselves.
type TLS struct {
	Authority *testkit.Authority
	// Certificate is every broker's.
	Certificate testkit.Certificate
	// RequireClient refuses clients without a certificate of Authority on SSL.
	// Such a client's principal is User:CN=<name>.
	RequireClient bool
}

// plain reports whether any Kafka will do.
func (c *Config) plain() bool {
	return c.Brokers <= 1 && c.Version == "" && len(c.Properties) == 0 && len(c.Users) == 0 && c.TLS == nil && !c.ACL
}

func (c *Config) withDefaults() (Config, error) {
	d := *c
	if d.Brokers == 0 {
		d.Brokers = 1
	}
	if d.Brokers != 1 && d.Brokers != 3 {
		return d, fmt.Errorf("realkafka: %d brokers: want 1 or 3", d.Brokers)
	}
	if d.Version == "" {
		d.Version = cmp.Or(os.Getenv("MILENA_TEST_KAFKA_VERSION"), DefaultVersion)
	}
	return d, nil
}

// Listener is one of a cluster's doors.
type Listener string

// The listeners. Plaintext is always there.
const (
	Plaintext     Listener = "PLAINTEXT"
	SSL           Listener = "SSL"
	SASLPlaintext Listener = "SASL_PLAINTEXT"
	SASLSSL       Listener = "SASL_SSL"
	controller    Listener = "CONTROLLER"
)

func (c *Config) listeners() []Listener {
	ls := []Listener{Plaintext}
	if c.TLS != nil {
		ls = append(ls, SSL)
	}
	if len(c.Users) > 0 {
		ls = append(ls, SASLPlaintext)
		if c.TLS != nil {
			ls = append(ls, SASLSSL)
		}
	}
	return ls
}

// saslModules are the login modules on a SASL listener, by mechanism.
func (c *Config) saslModules() map[string]string {
	const pkg = "org.apache.kafka.common.security."
	var plain strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.Users)) {
		fmt.Fprintf(&plain, " user_%s=%q", name, c.Users[name])
	}
	return map[string]string{
		"plain":         pkg + "plain.PlainLoginModule required" + plain.String() + ";",
		"scram-sha-256": pkg + "scram.ScramLoginModule required;",
		"scram-sha-512": pkg + "scram.ScramLoginModule required;",
		"oauthbearer":   pkg + `oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`,
	}
}

// properties are those of one broker.
func (c *Config) properties(b *broker, voters string) map[string]string {
	replicas := fmt.Sprint(c.Brokers)
	p := map[string]string{
		"process.roles": "broker,controller", "node.id": fmt.Sprint(b.id),
		"controller.quorum.voters": voters, "controller.listener.names": string(controller),
		"inter.broker.listener.name": string(Plaintext), "log.dirs": filepath.Join(b.dir, "data"),

		"offsets.topic.replication.factor": replicas, "transaction.state.log.replication.factor": replicas,
		"share.coordinator.state.topic.replication.factor": replicas, "default.replication.factor": replicas,
		"min.insync.replicas": "1", "transaction.state.log.min.isr": "1", "share.coordinator.state.topic.min.isr": "1",
		"offsets.topic.num.partitions": "6", "transaction.state.log.num.partitions": "3",

		"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000",
		// The defaults are for heaps of gigabytes.
		"log.cleaner.dedupe.buffer.size": "8388608", "num.network.threads": "2", "num.io.threads": "4",
	}
	if c.Brokers == 3 {
		p["min.insync.replicas"], p["transaction.state.log.min.isr"], p["share.coordinator.state.topic.min.isr"] = "2", "2", "2"
	}
	var listeners, advertised, protocols []string
	for _, l := range append(c.listeners(), controller) {
		at := fmt.Sprintf("%s://127.0.0.1:%d", l, b.ports[l])
		listeners = append(listeners, at)
		if l == controller {
			protocols = append(protocols, "CONTROLLER:PLAINTEXT")
			continue
		}
		advertised = append(advertised, at)
		protocols = append(protocols, fmt.Sprintf("%s:%s", l, l))
	}
	p["listeners"] = strings.Join(listeners, ",")
	p["advertised.listeners"] = strings.Join(advertised, ",")
	p["listener.security.protocol.map"] = strings.Join(protocols, ",")
	if len(c.Users) > 0 {
		p["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
		for _, l := range []string{"sasl_plaintext", "sasl_ssl"} {
			for mechanism, module := range c.saslModules() {
				p["listener.name."+l+"."+mechanism+".sasl.jaas.config"] = module
			}
		}
	}
	if c.TLS != nil {
		p["ssl.keystore.type"], p["ssl.truststore.type"] = "PEM", "PEM"
		p["ssl.keystore.location"] = filepath.Join(b.dir, "keystore.pem")
		p["ssl.truststore.location"] = filepath.Join(b.dir, "truststore.pem")
		p["listener.name.ssl.ssl.client.auth"] = "requested"
		if c.TLS.RequireClient {
			p["listener.name.ssl.ssl.client.auth"] = "required"
		}
	}
	if c.ACL {
		p["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		p["super.users"] = "User:ANONYMOUS"
		p["allow.everyone.if.no.acl.found"] = "false"
	}
	maps.Copy(p, c.Properties)
	return p
}

// Both logging systems get a file: Kafka 4 has log4j2, Kafka 3 reload4j.
const (
	log4j2Config = `status = error
appender.out.type = Console
appender.out.name = OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = OUT
`
	reload4jConfig = `log4j.rootLogger=WARN, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=%d %p %m (%c)%n
`
)

// writeFiles lays out everything that a broker reads at its start.
func (c *Config) writeFiles(b *broker, voters string) error {
	var props strings.Builder
	all := c.properties(b, voters)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&props, "%s=%s\n", k, all[k])
	}
	files := map[string]string{
		"server.properties": props.String(), "log4j2.properties": log4j2Config, "log4j.properties": reload4jConfig,
	}
	if c.TLS != nil {
		files["keystore.pem"] = string(c.TLS.Certificate.KeyPEM) + string(c.TLS.Certificate.CertPEM)
		files["truststore.pem"] = string(c.TLS.Authority.PEM)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}
