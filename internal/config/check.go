package config

import (
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/milena-project/milena/dispatcher"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/router"
	"github.com/milena-project/milena/retrytopics"
	"github.com/milena-project/milena/schemas"
)

var noBrokers = Problem{Key: "kafka.brokers", Source: "not given", Want: `there is no default; give the address of a broker by one of
  --brokers kafka-1:9092
  MILENA_KAFKA_BROKERS=kafka-1:9092
  kafka.brokers in the YAML file that --config names
or try Milena without a Kafka of your own: milena dev`}

// topicPrefix leaves room for the longest name that follows it: Kafka takes 249 in all.
var topicPrefix = regexp.MustCompile(`^[A-Za-z0-9._-]{0,200}$`)

// check finds what no single value shows: bounds, and settings that belong together.
func (l *Loaded) check(needBrokers bool) (problems []Problem) {
	bad := func(path, want string) {
		key := Lookup(path)
		problems = append(problems, Problem{Key: path, Value: key.mask(l.textOf(key)), Source: l.sources[path], Want: want})
	}
	if needBrokers && len(l.Kafka.Brokers) == 0 {
		problems = append(problems, noBrokers)
	}
	if !topicPrefix.MatchString(l.Prefix) {
		bad("prefix", "want at most 200 of A-Z a-z 0-9 . _ -, as names of topics have them: a broker would refuse every topic")
	}
	l.checkBounds(bad)
	l.checkKafka(bad)
	l.checkSources(bad)
	if addr := l.HTTP.DebugAddr; addr != "" && !isLoopback(addr) {
		bad("http.debug_addr", "want an address of the loopback interface such as 127.0.0.1:8081: it shows what is inside")
	}
	if p := l.Egress.Proxy; p != "" {
		u, err := url.Parse(p)
		if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
			bad("egress.proxy", "want a URL such as http://proxy:3128 or socks5://proxy:1080")
		}
	} else if l.Egress.ProxyDNS {
		bad("egress.proxy_dns", "want egress.proxy too: there is no proxy that could resolve names")
	}
	for _, host := range l.Egress.AllowHosts {
		if _, err := netip.ParseAddr(host); err == nil {
			bad("egress.allow_hosts", "want names; allow the address "+host+" by egress.allow_cidrs")
		}
	}
	for _, tier := range []time.Duration{0, 10 * time.Second} {
		if !slices.Contains(l.Retry.Tiers, tier) {
			bad("retry.tiers", "want "+tier.String()+" among them: the last hop before a delivery is due goes there")
		}
	}
	return problems
}

func (l *Loaded) checkBounds(bad func(path, want string)) {
	numbers := []struct {
		path     string
		value    int64
		min, max int64
		want     string
	}{
		{"topics.partitions", int64(l.Topics.Partitions), 1, 1 << 20, "want at least 1"},
		{"topics.retry_partitions", int64(l.Topics.RetryPartitions), 1, 1 << 20, "want at least 1"},
		{"topics.min_insync_replicas", int64(l.Topics.MinInsyncReplicas), 0, 1 << 15, "want 0 (the broker's default) or more"},
		{"dispatcher.max_in_flight", int64(l.Dispatcher.MaxInFlight), 1, 1 << 24, "want at least 1"},
		{"dispatcher.unsettled_per_partition", int64(l.Dispatcher.UnsettledPerPartition), 1, 1 << 24, "want at least 1"},
		{"dispatcher.queued_bytes", int64(l.Dispatcher.QueuedBytes), 2 << 20, 1 << 50, "want at least 2MiB, room for two of the largest payloads"},
		{"tenants.max_endpoints", int64(l.Tenants.MaxEndpoints), 0, 1 << 30, "want 0 (no bound) or more"},
		{"tenants.max_in_flight_share", int64(l.Tenants.MaxInFlightShare), 1, 100, "want 1 to 100 (per cent)"},
		{"tenants.rate", int64(l.Tenants.Rate), 0, 1 << 30, "want 0 (no bound) or more"},
		{"dispatcher.duplicates.entries", int64(l.Dispatcher.Duplicates.Entries), 1, 1 << 30, "want at least 1"},
	}
	for _, n := range numbers {
		if n.value < n.min || n.value > n.max {
			bad(n.path, n.want)
		}
	}
	if r := l.Topics.Replication; r == 0 || r < -1 || r > math.MaxInt16 {
		bad("topics.replication", "want -1 (the broker's default), or 1 to 32767")
	} else if r > 0 && l.Topics.MinInsyncReplicas > r {
		bad("topics.min_insync_replicas", "want at most topics.replication, else nothing could be written")
	}
	durations := []struct {
		path       string
		value, min time.Duration
	}{
		{"kafka.dial_timeout", l.Kafka.DialTimeout, 10 * time.Millisecond},
		{"kafka.session_timeout", l.Kafka.SessionTimeout, time.Second},
		{"dispatcher.lane_time", l.Dispatcher.LaneTime, 10 * time.Millisecond},
		{"dispatcher.commit_interval", l.Dispatcher.CommitInterval, 10 * time.Millisecond},
		{"dispatcher.duplicates.age", l.Dispatcher.Duplicates.Age, time.Second},
		{"retry.max_age", l.Retry.MaxAge, time.Second},
	}
	for _, d := range durations {
		if d.value < d.min {
			bad(d.path, "want at least "+d.min.String())
		}
	}
	if g, need := l.Dispatcher.GraceTime, l.Dispatcher.DrainBudget+dispatcher.DefaultTimeout; g != 0 && g < need {
		bad("dispatcher.grace_time", "want at least "+need.String()+": dispatcher.drain_budget and the default timeout of an endpoint; or 0s, if it is not known")
	}
	if l.Retry.MaxAge > retrytopics.LongestMaxAge {
		bad("retry.max_age", "want at most "+retrytopics.LongestMaxAge.String())
	}
	if l.Dispatcher.Duplicates.Age > kafka.TombstonesKept {
		bad("dispatcher.duplicates.age", "want at most "+kafka.TombstonesKept.String()+", for which tombstones of dead letters stay (delete.retention.ms): after it an import could bring back a letter that is taken for a duplicate")
	}
	if l.Dispatcher.CommitInterval*2 > l.Kafka.SessionTimeout {
		bad("dispatcher.commit_interval", "want less than half of kafka.session_timeout ("+l.Kafka.SessionTimeout.String()+")")
	}
}

func (l *Loaded) checkKafka(bad func(path, want string)) {
	t, s := l.Kafka.TLS, l.Kafka.SASL
	if (t.CertFile == "") != (t.KeyFile == "") {
		bad("kafka.tls.cert_file", "want kafka.tls.cert_file and kafka.tls.key_file together")
	}
	for _, file := range [][2]string{{"kafka.tls.ca_file", t.CAFile}, {"kafka.tls.cert_file", t.CertFile}, {"kafka.tls.key_file", t.KeyFile}} {
		if file[1] == "" {
			continue
		}
		if _, err := os.Stat(file[1]); err != nil {
			bad(file[0], "want a file that can be read; "+err.Error())
		}
	}
	switch s.Mechanism {
	case "":
		if s.User != "" || s.Password != "" || s.OAuth.TokenURL != "" {
			bad("kafka.sasl.mechanism", "want "+oneOf(Lookup("kafka.sasl.mechanism"), nil)+", because other settings of kafka.sasl are given")
		}
	case kafka.SASLPlain, kafka.SASLScramSHA256, kafka.SASLScramSHA512:
		if s.User == "" {
			bad("kafka.sasl.user", "want a user name, because kafka.sasl.mechanism is "+s.Mechanism)
		}
		if s.Password == "" {
			bad("kafka.sasl.password", "want a password by kafka.sasl.password_file or MILENA_KAFKA_SASL_PASSWORD, because kafka.sasl.mechanism is "+s.Mechanism)
		}
	case kafka.SASLOAuthBearer:
		if s.OAuth.TokenURL == "" || s.OAuth.ClientID == "" || s.OAuth.ClientSecret == "" {
			bad("kafka.sasl.oauth.token_url", "want token_url, client_id and client_secret_file, because kafka.sasl.mechanism is "+s.Mechanism)
		}
	}
}

var topicName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

func (l *Loaded) checkSources(bad func(path, want string)) {
	names := schemas.Names{Prefix: l.Prefix}
	for _, topic := range l.Sources.Topics {
		switch {
		case !topicName.MatchString(topic) || topic == "." || topic == "..":
			bad("sources.topics", fmt.Sprintf("want names of topics; %q cannot be one", topic))
		case names.Own(topic):
			bad("sources.topics", "want topics of your own; "+topic+" is one of Milena's, and its records would go round in circles")
		}
	}
	mapping := func(path string, by map[string]string) {
		for _, topic := range slices.Sorted(maps.Keys(by)) {
			switch header, mapped := strings.CutPrefix(by[topic], router.FromHeader); {
			case !slices.Contains(l.Sources.Topics, topic):
				bad(path, "want topics of sources.topics; "+topic+" is none")
			case by[topic] == "", mapped && header == "":
				bad(path, "want a value, or header: and a name, for "+topic)
			}
		}
	}
	mapping("sources.types", l.Sources.Types)
	mapping("sources.tenants", l.Sources.Tenants)
	if len(l.Sources.Topics) == 0 && len(l.Roles) == 1 && l.Roles[0] == "router" {
		bad("sources.topics", "want topics to read, because router is the only role")
	}
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
