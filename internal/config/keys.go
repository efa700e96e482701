package config

import (
	"strings"

	"github.com/milena-project/milena/internal/kafka"
)

// Key is one setting. Path is its YAML path; the other names are made from it.
type Key struct {
	Path    string
	Doc     string   // one sentence or two, ending in a full stop
	Default string   // as it would be written; lists with commas
	Choices []string // empty: any value of the kind
	Alias   string   // a second, shorter flag
	Secret  bool     // no flag, masked; a key "<Path>_file" may stand beside it
	URL     bool     // a user and password in it are masked

	field func(*Config) any // where it goes; its type is the kind of the value
}

// Env is the environment variable of a setting.
func (k *Key) Env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(k.Path, ".", "_"))
}

// Flag is the flag of a setting, without dashes; a secret has none.
func (k *Key) Flag() string {
	if k.Secret {
		return ""
	}
	return strings.NewReplacer(".", "-", "_", "-").Replace(k.Path)
}

// Group is the first part of the path, empty for a setting at the top.
func (k *Key) Group() string {
	group, _, nested := strings.Cut(k.Path, ".")
	if !nested {
		return ""
	}
	return group
}

// EnvPrefix begins the environment variable of every setting.
const EnvPrefix = "MILENA_"

// Keys is the table of every setting, in the order in which they are documented.
var Keys = []Key{
	{Path: "prefix", Default: "webhooks.", field: func(c *Config) any { return &c.Prefix },
		Doc: "Begins every topic, consumer group, transactional id and client id, so that installations can share a cluster."},
	{Path: "roles", Default: "dispatcher,releaser,router", Choices: []string{"dispatcher", "releaser", "router"}, field: func(c *Config) any { return &c.Roles },
		Doc: "Which parts this process runs."},
	{Path: "initial_offset", Default: "none", Choices: []string{"none", "earliest", "latest"}, field: func(c *Config) any { return &c.InitialOffset },
		Doc: "Where to begin on a partition that has records but no commit, or has lost what was committed. none refuses to guess: the process is not ready until you decide."},
	{Path: "keyring", Secret: true, field: func(c *Config) any { return &c.Keyring },
		Doc: "The keys that encrypt endpoint secrets at rest. The first encrypts, all decrypt."},
	{Path: "keyring_file", field: func(c *Config) any { return (*path)(&c.KeyringFile) },
		Doc: "A file that holds the key ring."},

	{Path: "kafka.brokers", Alias: "brokers", field: func(c *Config) any { return (*addresses)(&c.Kafka.Brokers) },
		Doc: "Brokers to ask first, host:port. There is no default: you have a Kafka of your own."},
	{Path: "kafka.client_id", field: func(c *Config) any { return &c.Kafka.ClientID },
		Doc: "How the process names itself to brokers, after the prefix. Default: the prefix alone, without its full stop."},
	{Path: "kafka.dial_timeout", Default: "10s", field: func(c *Config) any { return &c.Kafka.DialTimeout },
		Doc: "How long one attempt to connect to a broker may take."},
	{Path: "kafka.session_timeout", Default: "45s", field: func(c *Config) any { return &c.Kafka.SessionTimeout },
		Doc: "A process that the broker has not heard from for so long loses its partitions. The ownership lease is computed from it."},
	{Path: "kafka.group_protocol", Default: "classic", Choices: []string{"classic", "consumer"}, field: func(c *Config) any { return &c.Kafka.GroupProtocol },
		Doc: "The consumer group protocol; consumer is KIP-848, for Kafka 4.3 or later."},
	{Path: "kafka.tls.enabled", Default: "false", field: func(c *Config) any { return &c.Kafka.TLS.Enabled },
		Doc: "Connect to brokers by TLS."},
	{Path: "kafka.tls.ca_file", field: func(c *Config) any { return (*path)(&c.Kafka.TLS.CAFile) },
		Doc: "PEM file of the authorities that signed the brokers' certificates. Default: those of the system."},
	{Path: "kafka.tls.cert_file", field: func(c *Config) any { return (*path)(&c.Kafka.TLS.CertFile) },
		Doc: "PEM file of the client certificate."},
	{Path: "kafka.tls.key_file", field: func(c *Config) any { return (*path)(&c.Kafka.TLS.KeyFile) },
		Doc: "PEM file of the client certificate's key."},
	{Path: "kafka.tls.server_name", field: func(c *Config) any { return &c.Kafka.TLS.ServerName },
		Doc: "The name to expect in brokers' certificates. Default: the host that was dialled."},
	{Path: "kafka.sasl.mechanism", Choices: []string{"", kafka.SASLPlain, kafka.SASLScramSHA256, kafka.SASLScramSHA512, kafka.SASLOAuthBearer, kafka.SASLAWSMSKIAM}, field: func(c *Config) any { return (*upper)(&c.Kafka.SASL.Mechanism) },
		Doc: "How to log in to brokers. Default: not at all."},
	{Path: "kafka.sasl.user", field: func(c *Config) any { return &c.Kafka.SASL.User },
		Doc: "User name for PLAIN and SCRAM."},
	{Path: "kafka.sasl.password", Secret: true, field: func(c *Config) any { return &c.Kafka.SASL.Password },
		Doc: "Password for PLAIN and SCRAM."},
	{Path: "kafka.sasl.password_file", field: func(c *Config) any { return (*path)(&c.Kafka.SASL.PasswordFile) },
		Doc: "A file that holds the password; read again when it changes."},
	{Path: "kafka.sasl.oauth.token_url", URL: true, field: func(c *Config) any { return &c.Kafka.SASL.OAuth.TokenURL },
		Doc: "Token endpoint of the client-credentials grant, for OAUTHBEARER."},
	{Path: "kafka.sasl.oauth.client_id", field: func(c *Config) any { return &c.Kafka.SASL.OAuth.ClientID },
		Doc: "Client id at the token endpoint."},
	{Path: "kafka.sasl.oauth.client_secret", Secret: true, field: func(c *Config) any { return &c.Kafka.SASL.OAuth.ClientSecret },
		Doc: "Client secret at the token endpoint."},
	{Path: "kafka.sasl.oauth.client_secret_file", field: func(c *Config) any { return (*path)(&c.Kafka.SASL.OAuth.ClientSecretFile) },
		Doc: "A file that holds the client secret; read again when it changes."},
	{Path: "kafka.sasl.oauth.scopes", field: func(c *Config) any { return &c.Kafka.SASL.OAuth.Scopes },
		Doc: "Scopes to ask for."},
	{Path: "kafka.sasl.oauth.audience", field: func(c *Config) any { return &c.Kafka.SASL.OAuth.Audience },
		Doc: "Audience to ask for, where the identity provider wants one."},
	{Path: "kafka.sasl.oauth.extensions", field: func(c *Config) any { return (*pairs)(&c.Kafka.SASL.OAuth.Extensions) },
		Doc: "SASL extensions, name=value; Confluent Cloud wants logicalCluster and identityPoolId."},
	{Path: "kafka.sasl.oauth.ca_file", field: func(c *Config) any { return (*path)(&c.Kafka.SASL.OAuth.CAFile) },
		Doc: "PEM file of the authority that signed the token endpoint's certificate. Default: those of the system."},

	{Path: "topics.partitions", Default: "12", field: func(c *Config) any { return &c.Topics.Partitions },
		Doc: "Partitions of deliveries, hold, dlq, attempts and health. Raise it only as docs/operations.md says."},
	{Path: "topics.retry_partitions", Default: "3", field: func(c *Config) any { return &c.Topics.RetryPartitions },
		Doc: "Partitions of each retry tier."},
	{Path: "topics.replication", Default: "-1", field: func(c *Config) any { return &c.Topics.Replication },
		Doc: "Replicas of every topic that is created; -1 leaves it to the broker."},
	{Path: "topics.min_insync_replicas", Default: "0", field: func(c *Config) any { return &c.Topics.MinInsyncReplicas },
		Doc: "min.insync.replicas of every topic that is created; 0 leaves it to the broker."},

	{Path: "sources.topics", field: func(c *Config) any { return &c.Sources.Topics },
		Doc: "Topics of your own that the router reads. Each event goes to every endpoint of its tenant (ce_tenant) that subscribes to its type (ce_type). Default: none, and the router has nothing to do."},
	{Path: "sources.types", field: func(c *Config) any { return (*pairs)(&c.Sources.Types) },
		Doc: "The event type of records that have no ce_type, topic=type or topic=header:NAME, where NAME is the record header that holds it. Default: event."},
	{Path: "sources.tenants", field: func(c *Config) any { return (*pairs)(&c.Sources.Tenants) },
		Doc: "The tenant of records that have no ce_tenant, topic=tenant or topic=header:NAME. Default: no tenant."},

	{Path: "dispatcher.max_in_flight", Default: "4096", field: func(c *Config) any { return &c.Dispatcher.MaxInFlight },
		Doc: "Requests in flight at once in this process, over all endpoints."},
	{Path: "dispatcher.lane_time", Default: "5s", field: func(c *Config) any { return &c.Dispatcher.LaneTime },
		Doc: "What would not start within this time goes to the hold topic."},
	{Path: "dispatcher.queued_bytes", Default: "512MiB", field: func(c *Config) any { return &c.Dispatcher.QueuedBytes },
		Doc: "Bytes of payload queued in memory over all lanes."},
	{Path: "dispatcher.drain_budget", Default: "30s", field: func(c *Config) any { return &c.Dispatcher.DrainBudget },
		Doc: "How long a shutdown lets requests in flight finish."},
	{Path: "dispatcher.grace_time", Default: "0s", field: func(c *Config) any { return &c.Dispatcher.GraceTime },
		Doc: "How long whatever runs the process waits between SIGTERM and SIGKILL (terminationGracePeriodSeconds, TimeoutStopSec, stop_grace_period); given, so that the process can say at its start when that is too short: it takes dispatcher.drain_budget and the longest timeout of an endpoint. 0s: not checked."},
	{Path: "dispatcher.commit_interval", Default: "250ms", field: func(c *Config) any { return &c.Dispatcher.CommitInterval },
		Doc: "How often finished offsets are committed. A crash repeats what was finished since."},
	{Path: "dispatcher.unsettled_per_partition", Default: "1000", field: func(c *Config) any { return &c.Dispatcher.UnsettledPerPartition },
		Doc: "Finished attempts of one partition whose records are not acknowledged yet."},
	{Path: "tenants.max_endpoints", Default: "0", field: func(c *Config) any { return &c.Tenants.MaxEndpoints },
		Doc: "How many endpoints a tenant may have that are not deleted, checked when one is created; those without a tenant count as one tenant. 0: no bound."},
	{Path: "tenants.max_in_flight_share", Default: "100", field: func(c *Config) any { return &c.Tenants.MaxInFlightShare },
		Doc: "Per cent of dispatcher.max_in_flight that the endpoints of one tenant may have open together. Endpoints without a tenant are not bounded by it."},
	{Path: "tenants.rate", Default: "0", field: func(c *Config) any { return &c.Tenants.Rate },
		Doc: "POSTs a second to the endpoints of one tenant together, from each process; 0: no bound. Not for endpoints without a tenant."},
	{Path: "dispatcher.duplicates.entries", Default: "1000000", field: func(c *Config) any { return &c.Dispatcher.Duplicates.Entries },
		Doc: "Attempts that an owner remembers, to drop copies."},
	{Path: "dispatcher.duplicates.age", Default: "15m", field: func(c *Config) any { return &c.Dispatcher.Duplicates.Age },
		Doc: "How long an owner remembers an attempt. At most 24h."},

	{Path: "retry.tiers", Default: "0s,10s,1m,5m,30m,2h,6h,12h,24h", field: func(c *Config) any { return &c.Retry.Tiers },
		Doc: "Delays of the retry topics. 0s and 10s must be among them."},
	{Path: "retry.max_age", Default: "96h", field: func(c *Config) any { return &c.Retry.MaxAge },
		Doc: "A delivery older than this is not tried again. An endpoint can have its own."},

	{Path: "egress.allow_cidrs", field: func(c *Config) any { return &c.Egress.AllowCIDRs },
		Doc: "Address ranges that requests may go to although they are private or special, such as 10.1.0.0/16."},
	{Path: "egress.allow_hosts", field: func(c *Config) any { return &c.Egress.AllowHosts },
		Doc: "Host names that requests may go to whatever address they have."},
	{Path: "egress.allow_http", Default: "false", field: func(c *Config) any { return &c.Egress.AllowHTTP },
		Doc: "Accept endpoints with http:// URLs."},
	{Path: "egress.ports", Default: "80,443,1024-65535", field: func(c *Config) any { return &c.Egress.Ports },
		Doc: "Ports and ranges of ports that requests may go to."},
	{Path: "egress.proxy", URL: true, field: func(c *Config) any { return &c.Egress.Proxy },
		Doc: "A forward proxy for all requests to endpoints: http://, https:// or socks5://."},
	{Path: "egress.proxy_dns", Default: "false", field: func(c *Config) any { return &c.Egress.ProxyDNS },
		Doc: "Let the proxy resolve names. Then the proxy must refuse private addresses itself."},

	{Path: "http.addr", Default: ":8080", field: func(c *Config) any { return (*address)(&c.HTTP.Addr) },
		Doc: "Where /metrics, /healthz and /readyz are served."},
	{Path: "http.debug_addr", field: func(c *Config) any { return (*address)(&c.HTTP.DebugAddr) },
		Doc: "Where /debug/lanes and /debug/pprof are served, on a loopback address only. Default: nowhere."},

	{Path: "log.level", Default: "info", Choices: []string{"debug", "info", "warn", "error"}, field: func(c *Config) any { return &c.Log.Level },
		Doc: "The least important lines that are written."},
	{Path: "log.format", Default: "text", Choices: []string{"text", "json"}, field: func(c *Config) any { return &c.Log.Format },
		Doc: "How log lines look."},
	{Path: "log.successes", Default: "0", field: func(c *Config) any { return &c.Log.Successes },
		Doc: "The share of delivered attempts that get a line too, from 0 to 1 (or 5%, or true for all); those that failed always have one. A delivery is in the sample or it is not, whichever process makes its attempts."},
}

// Lookup finds a setting by its YAML path; nil if there is none.
func Lookup(yamlPath string) *Key {
	for i := range Keys {
		if Keys[i].Path == yamlPath {
			return &Keys[i]
		}
	}
	return nil
}
