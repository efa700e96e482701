package config

import "strings"

// foreign maps names of other Kafka clients (Java, librdkafka) to ours.
var foreign = map[string]string{
	"bootstrap.servers":                   "kafka.brokers",
	"metadata.broker.list":                "kafka.brokers",
	"security.protocol":                   "kafka.tls.enabled (true for SSL and SASL_SSL) and kafka.sasl.mechanism (for SASL_*)",
	"sasl.mechanism":                      "kafka.sasl.mechanism",
	"sasl.mechanisms":                     "kafka.sasl.mechanism",
	"sasl.jaas.config":                    "kafka.sasl.user and kafka.sasl.password_file",
	"sasl.username":                       "kafka.sasl.user",
	"sasl.password":                       "kafka.sasl.password_file or MILENA_KAFKA_SASL_PASSWORD",
	"sasl.oauthbearer.token.endpoint.url": "kafka.sasl.oauth.token_url",
	"sasl.oauthbearer.client.id":          "kafka.sasl.oauth.client_id",
	"sasl.oauthbearer.client.secret":      "kafka.sasl.oauth.client_secret_file",
	"ssl.truststore.location":             "kafka.tls.ca_file (PEM)",
	"ssl.ca.location":                     "kafka.tls.ca_file",
	"ssl.keystore.location":               "kafka.tls.cert_file and kafka.tls.key_file (PEM)",
	"ssl.certificate.location":            "kafka.tls.cert_file",
	"ssl.key.location":                    "kafka.tls.key_file",
	"client.id":                           "kafka.client_id",
	"session.timeout.ms":                  "kafka.session_timeout",
	"group.protocol":                      "kafka.group_protocol",
	"group.id":                            "prefix (the groups are <prefix>dispatcher, <prefix>releaser and <prefix>router)",
	"auto.offset.reset":                   "initial_offset",
	"auto.commit.interval.ms":             "dispatcher.commit_interval",
	"min.insync.replicas":                 "topics.min_insync_replicas",
	"replication.factor":                  "topics.replication",
	"num.partitions":                      "topics.partitions",
}

// Suggest names the setting that was probably meant by an unknown name in any
// spelling (YAML path, environment variable, flag, or another Kafka client's
// name), as a YAML path; empty when nothing is near.
func Suggest(name string) string {
	n := normal(name)
	for rest, more := n, true; more; _, rest, more = strings.Cut(rest, ".") {
		if to, ok := foreign[rest]; ok {
			return to
		}
	}
	best, bestDistance := "", len(n)/3+1
	for i := range Keys {
		key := normal(Keys[i].Path)
		if key != n && strings.HasSuffix(key, "."+n) {
			return Keys[i].Path
		}
		if d := distance(n, key); d < bestDistance {
			best, bestDistance = Keys[i].Path, d
		}
	}
	if best != "" {
		return best
	}
	// A last part that is near, under a group that was left out or is another one.
	for i := range Keys {
		key := normal(Keys[i].Path)
		last := key[strings.LastIndexByte(key, '.')+1:]
		if d := distance(n[strings.LastIndexByte(n, '.')+1:], last); d <= 1 && len(last) > 4 {
			return Keys[i].Path
		}
	}
	return ""
}

// Nearest is the candidate that is spelt nearly as name is, or none.
func Nearest(name string, candidates []string) string {
	n := normal(name)
	best, bestDistance := "", len(n)/3+1
	for _, c := range candidates {
		if d := distance(n, normal(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// normal brings the spellings of a name together.
func normal(name string) string {
	name = strings.ToLower(strings.TrimLeft(name, "-"))
	name = strings.TrimPrefix(name, strings.ToLower(EnvPrefix))
	return strings.NewReplacer("_", ".", "-", ".").Replace(name)
}

// distance is the number of edits (insert, delete, replace, swap neighbours) from a to b.
func distance(a, b string) int {
	older, last, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(last[j]+1, cur[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], older[j-2]+1)
			}
		}
		older, last, cur = last, cur, older
	}
	return last[len(b)]
}
