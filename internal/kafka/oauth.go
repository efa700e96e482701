package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// OAuthConfig gets tokens for OAUTHBEARER by the client-credentials grant
// (RFC 6749, section 4.4), as KIP-768 does for the Java client.
type OAuthConfig struct {
	TokenURL         string            // kafka.sasl.oauth.token_url; https, or http on loopback
	ClientID         string            // kafka.sasl.oauth.client_id
	ClientSecret     string            // kafka.sasl.oauth.client_secret, or
	ClientSecretFile string            // kafka.sasl.oauth.client_secret_file
	Scopes           []string          // kafka.sasl.oauth.scopes
	Audience         string            // kafka.sasl.oauth.audience; sent where the server asks for one
	Extensions       map[string]string // kafka.sasl.oauth.extensions; Confluent: logicalCluster, identityPoolId
	CAFile           string            // kafka.sasl.oauth.ca_file: authority of the token endpoint; default: the system's
}

// tokenMargin is how long before its end a token is replaced: a broker closes
// connections whose token has ended, and clocks differ.
const tokenMargin = 30 * time.Second

// tokenTimeout bounds one request to the token endpoint.
const tokenTimeout = 10 * time.Second

// tokenSource keeps one token for all connections of a client.
type tokenSource struct {
	cfg   OAuthConfig
	files *tlsFiles

	turn  chan struct{} // capacity 1; who holds it owns token. A channel, so that waiting ends with the context
	token *oauth2.Token
}

func newTokenSource(c OAuthConfig) (*tokenSource, error) {
	const key = "kafka.sasl.oauth.token_url"
	u, err := url.Parse(c.TokenURL)
	switch {
	case c.TokenURL == "":
		return nil, &Error{Key: key, Why: "is not set", Remedy: SASLOAuthBearer + " needs the token endpoint of your identity provider"}
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, &Error{Key: key, Value: c.TokenURL, Why: "is no URL", Remedy: "give https://host/path"}
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return nil, &Error{Key: key, Value: c.TokenURL, Why: "would send the client secret unencrypted", Remedy: "give an https URL"}
	case c.ClientID == "":
		return nil, &Error{Key: "kafka.sasl.oauth.client_id", Why: "is not set", Remedy: SASLOAuthBearer + " needs it"}
	}
	if _, err := secretOf("kafka.sasl.oauth.client_secret", c.ClientSecret, c.ClientSecretFile); err != nil {
		return nil, err
	}
	s := &tokenSource{cfg: c, files: &tlsFiles{cfg: TLSConfig{CAFile: c.CAFile}}, turn: make(chan struct{}, 1)}
	if _, err := s.files.config(u.Hostname()); err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.Key = "kafka.sasl.oauth.ca_file"
		}
		return nil, err
	}
	return s, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// auth is called by kgo for every connection and every re-authentication.
func (s *tokenSource) auth(ctx context.Context) (oauth.Auth, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return oauth.Auth{}, ctx.Err()
	}
	if s.token == nil || !s.token.Expiry.IsZero() && time.Until(s.token.Expiry) < tokenMargin {
		t, err := s.fetch(ctx)
		if err != nil {
			return oauth.Auth{}, fmt.Errorf("kafka.sasl.oauth.token_url = %q gave no token: %w", s.cfg.TokenURL, err)
		}
		s.token = t
	}
	return oauth.Auth{Token: s.token.AccessToken, Extensions: maps.Clone(s.cfg.Extensions)}, nil
}

func (s *tokenSource) fetch(ctx context.Context) (*oauth2.Token, error) {
	secret, err := secretOf("kafka.sasl.oauth.client_secret", s.cfg.ClientSecret, s.cfg.ClientSecretFile)
	if err != nil {
		return nil, err
	}
	cc := clientcredentials.Config{ClientID: s.cfg.ClientID, ClientSecret: secret, TokenURL: s.cfg.TokenURL, Scopes: s.cfg.Scopes}
	if s.cfg.Audience != "" {
		cc.EndpointParams = url.Values{"audience": {s.cfg.Audience}}
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	// A transport for this one request: tokens are asked for once in minutes, and
	// an idle connection would outlive the client.
	tr := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if s.cfg.CAFile != "" {
		u, err := url.Parse(s.cfg.TokenURL)
		if err != nil {
			return nil, err
		}
		if tr.TLSClientConfig, err = s.files.config(u.Hostname()); err != nil {
			return nil, err
		}
	}
	return cc.Token(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: tr}))
}
