package config

import (
	"net/netip"
	"time"

	"github.com/milena-project/milena/internal/egress"
)

// Config is the effective configuration, grouped as the YAML is. What each field
// means, its default and its unit stand in the table Keys.
type Config struct {
	Prefix        string
	Roles         []string
	InitialOffset string
	Keyring       string // the key ring itself, already read from KeyringFile where that was given
	KeyringFile   string

	Kafka      Kafka
	Topics     Topics
	Sources    Sources
	Dispatcher Dispatcher
	Tenants    Tenants
	Retry      Retry
	Egress     Egress
	HTTP       HTTP
	Log        Log
}

// Kafka is how to reach the cluster and how groups behave there.
type Kafka struct {
	Brokers        []string
	ClientID       string
	DialTimeout    time.Duration
	SessionTimeout time.Duration
	GroupProtocol  string // classic or consumer
	TLS            TLS
	SASL           SASL
}

// TLS of the connections to brokers. The files are read again when they change.
type TLS struct {
	Enabled    bool
	CAFile     string
	CertFile   string
	KeyFile    string
	ServerName string
}

// SASL says how to log in to brokers. Where a …File is set, the secret beside it
// holds what the file held at the start.
type SASL struct {
	Mechanism    string // one of the constants kafka.SASL…; empty: none
	User         string
	Password     string
	PasswordFile string
	OAuth        OAuth
}

// OAuth is the client-credentials grant of OAUTHBEARER.
type OAuth struct {
	TokenURL         string
	ClientID         string
	ClientSecret     string
	ClientSecretFile string
	Scopes           []string
	Audience         string
	Extensions       map[string]string
	CAFile           string
}

// Topics is what `milena topics` plans and what the start-up check wants.
type Topics struct {
	Partitions        int
	RetryPartitions   int
	Replication       int // -1: the broker's default
	MinInsyncReplicas int // 0: the broker's default
}

// Sources are the topics of others that the router reads, and what it may add to
// their records; see router.Mapping.
type Sources struct {
	Topics  []string
	Types   map[string]string // by topic
	Tenants map[string]string // by topic
}

// Dispatcher bounds the work of one process.
type Dispatcher struct {
	MaxInFlight           int
	LaneTime              time.Duration
	QueuedBytes           Size
	DrainBudget           time.Duration
	GraceTime             time.Duration // 0: not told
	CommitInterval        time.Duration
	UnsettledPerPartition int
	Duplicates            Duplicates
}

// Tenants bounds what each tenant may have, and gets of a dispatcher process.
type Tenants struct {
	MaxEndpoints     int // that are not deleted; 0: no bound
	MaxInFlightShare int // per cent
	Rate             int // POSTs a second; 0: no bound
}

// Duplicates is an owner's memory of attempts that it has made.
type Duplicates struct {
	Entries int
	Age     time.Duration
}

// Retry is the set of delay topics and how long a delivery may be tried.
type Retry struct {
	Tiers  []time.Duration
	MaxAge time.Duration
}

// Egress says which addresses requests to endpoints may go to.
type Egress struct {
	AllowCIDRs []netip.Prefix
	AllowHosts []string
	AllowHTTP  bool
	Ports      []egress.PortRange
	Proxy      string
	ProxyDNS   bool
}

// HTTP is where a process listens.
type HTTP struct {
	Addr      string
	DebugAddr string // loopback only; empty: none
}

// Log is what a process writes to stderr.
type Log struct {
	Level     string // debug, info, warn or error
	Format    string // text or json
	Successes Share  // of the delivered attempts
}
