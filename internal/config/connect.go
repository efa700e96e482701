package config

import (
	"log/slog"
	"net/url"

	"github.com/milena-project/milena/internal/egress"
	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// KafkaConfig is how every client of the process connects. Where a secret has a
// file, only the file is handed on, because it is read again when it changes.
// The mechanism AWS_MSK_IAM needs SASL.IAM from the caller.
func (c *Config) KafkaConfig(logger *slog.Logger) kafka.Config {
	s, o := c.Kafka.SASL, c.Kafka.SASL.OAuth
	if s.PasswordFile != "" {
		s.Password = ""
	}
	if o.ClientSecretFile != "" {
		o.ClientSecret = ""
	}
	clientID := c.Kafka.ClientID
	if clientID != "" {
		clientID = c.Prefix + clientID
	}
	return kafka.Config{
		Brokers:     c.Kafka.Brokers,
		ClientID:    clientID,
		Names:       schemas.Names{Prefix: c.Prefix},
		DialTimeout: c.Kafka.DialTimeout,
		Logger:      logger,
		TLS: kafka.TLSConfig{Enabled: c.Kafka.TLS.Enabled, CAFile: c.Kafka.TLS.CAFile, CertFile: c.Kafka.TLS.CertFile,
			KeyFile: c.Kafka.TLS.KeyFile, ServerName: c.Kafka.TLS.ServerName},
		SASL: kafka.SASLConfig{Mechanism: s.Mechanism, User: s.User, Password: s.Password, PasswordFile: s.PasswordFile,
			OAuth: kafka.OAuthConfig{TokenURL: o.TokenURL, ClientID: o.ClientID, ClientSecret: o.ClientSecret, ClientSecretFile: o.ClientSecretFile,
				Scopes: o.Scopes, Audience: o.Audience, Extensions: o.Extensions, CAFile: o.CAFile}},
	}
}

// EgressConfig is where requests to endpoints may go.
func (c *Config) EgressConfig() egress.Config {
	e := egress.Config{AllowCIDRs: c.Egress.AllowCIDRs, AllowHosts: c.Egress.AllowHosts, AllowHTTP: c.Egress.AllowHTTP,
		AllowedPorts: c.Egress.Ports, ProxyDNS: c.Egress.ProxyDNS}
	if c.Egress.Proxy != "" {
		e.Proxy, _ = url.Parse(c.Egress.Proxy) // checked when it was loaded
	}
	return e
}

// TopicsConfig is how the topics shall look.
func (c *Config) TopicsConfig() kafka.TopicsConfig {
	return kafka.TopicsConfig{
		Names:      schemas.Names{Prefix: c.Prefix},
		Partitions: int32(c.Topics.Partitions), RetryPartitions: int32(c.Topics.RetryPartitions), //nolint:gosec // checked when they were loaded
		Replication: int16(c.Topics.Replication), MinInsync: c.Topics.MinInsyncReplicas, //nolint:gosec // checked when they were loaded
		Tiers: c.Retry.Tiers, MaxAge: c.Retry.MaxAge, Sources: c.Sources.Topics,
	}
}
