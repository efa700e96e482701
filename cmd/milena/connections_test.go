//go:build kafka

package main

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/internal/testkit/realkafka"
)

// tokenEndpoint grants a token, which a development broker takes unsigned, to the
// client "milena" with the secret "s3cret".
func tokenEndpoint(t *testing.T) (url string, granted *atomic.Int64) {
	t.Helper()
	granted = new(atomic.Int64)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, ok := r.BasicAuth()
		if !ok || id != "milena" || secret != "s3cret" || r.FormValue("grant_type") != "client_credentials" {
			http.Error(w, `{"error":"invalid_client"}`, http.StatusUnauthorized)
			return
		}
		claims, err := json.Marshal(map[string]any{"sub": "milena", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()})
		if err != nil {
			t.Error(err)
		}
		enc := base64.RawURLEncoding.EncodeToString
		granted.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"token_type": "Bearer", "expires_in": 3600,
			"access_token": enc([]byte(`{"alg":"none"}`)) + "." + enc(claims) + "."})
	}))
	t.Cleanup(srv.Close)
	return srv.URL, granted
}

func keep(t *testing.T, name string, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEveryWayToConnectDelivers(t *testing.T) {
	ca := testkit.NewAuthority(t)
	cert := ca.Issue(t, testkit.CertSpec{Name: "milena"})
	c := realkafka.Start(t, realkafka.Config{
		Users: map[string]string{"milena": "open sesame"},
		TLS:   &realkafka.TLS{Authority: ca, Certificate: ca.Issue(t, testkit.CertSpec{}), RequireClient: true},
	})
	s := newSite(t, c.Brokers())
	s.endpoint(s.admin, "shop")
	token, granted := tokenEndpoint(t)
	caFile := "MILENA_KAFKA_TLS_CA_FILE=" + keep(t, "ca.pem", ca.PEM)
	const overTLS = "MILENA_KAFKA_TLS_ENABLED=true"
	user := []string{"MILENA_KAFKA_SASL_USER=milena", "MILENA_KAFKA_SASL_PASSWORD_FILE=" + keep(t, "password", []byte("open sesame\n"))}
	login := func(mechanism string, more ...string) []string {
		return append(append([]string{"MILENA_KAFKA_SASL_MECHANISM=" + mechanism}, user...), more...)
	}
	for i, way := range []struct {
		name string
		at   realkafka.Listener
		env  []string
	}{
		{"client certificate", realkafka.SSL, []string{overTLS, caFile,
			"MILENA_KAFKA_TLS_CERT_FILE=" + keep(t, "cert.pem", cert.CertPEM), "MILENA_KAFKA_TLS_KEY_FILE=" + keep(t, "key.pem", cert.KeyPEM)}},
		{"SCRAM-SHA-512", realkafka.SASLPlaintext, login("SCRAM-SHA-512")},
		{"SCRAM-SHA-256 over TLS", realkafka.SASLSSL, login("SCRAM-SHA-256", overTLS, caFile)},
		{"PLAIN over TLS", realkafka.SASLSSL, login("PLAIN", overTLS, caFile, "MILENA_KAFKA_TLS_SERVER_NAME=localhost")},
		{"OAUTHBEARER", realkafka.SASLPlaintext, []string{"MILENA_KAFKA_SASL_MECHANISM=OAUTHBEARER", "MILENA_KAFKA_SASL_OAUTH_TOKEN_URL=" + token,
			"MILENA_KAFKA_SASL_OAUTH_CLIENT_ID=milena", "MILENA_KAFKA_SASL_OAUTH_CLIENT_SECRET=s3cret"}},
	} {
		t.Run(way.name, func(t *testing.T) {
			s := *s
			s.t = t
			env := s.at(c.Addrs(way.at), way.env...)
			v := s.serve(env, "--initial-offset", "earliest")
			v.says("ready\n")
			s.do(env, "send", "--endpoint", "shop", "--data", way.name)
			s.received("shop", i+1)
			v.end()
		})
	}
	if granted.Load() == 0 {
		t.Error("the token endpoint was not asked")
	}
	t.Run("a wrong password is named", func(t *testing.T) {
		res := run(t, "", s.at(c.Addrs(realkafka.SASLPlaintext), "MILENA_KAFKA_SASL_MECHANISM=SCRAM-SHA-512", "MILENA_KAFKA_SASL_USER=milena",
			"MILENA_KAFKA_SASL_PASSWORD=wrong-one"), "topics", "plan", "--timeout", "1m")
		if res.code != exitFailed || !strings.Contains(res.err, "SASL_AUTHENTICATION_FAILED") || strings.Contains(res.err, "wrong-one") {
			t.Errorf("%+v", res)
		}
	})
}
