package kafka

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ping connects anew and says what came of it.
func ping(t testing.TB, cfg Config) error {
	t.Helper()
	cl, err := cfg.NewClient(kgo.RequestRetries(0), kgo.RetryTimeout(2*time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	return cl.Ping(within(t, time.Minute))
}

func TestTLSWithClientCertificatesThatAreReplaced(t *testing.T) {
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	var server atomic.Pointer[tls.Config]
	use := func(a *authority) {
		server.Store(&tls.Config{Certificates: []tls.Certificate{a.pair("broker.example")}, ClientCAs: a.pool(), ClientAuth: tls.RequireAndVerifyClientCert})
	}
	use(first)
	c := newCluster(t, kfake.TLS(&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return server.Load(), nil }}))
	f := newCertFiles(t)
	f.write(t, first, "milena")
	cfg := configFor(c)
	cfg.TLS = TLSConfig{CAFile: f.ca, CertFile: f.cert, KeyFile: f.key, ServerName: "broker.example"}
	opts, err := cfg.Opts()
	if err != nil {
		t.Fatal(err)
	}
	again := func() error { // with the options made once, as a process has them
		cl, err := kgo.NewClient(append(opts, kgo.RequestRetries(0), kgo.RetryTimeout(2*time.Second))...)
		if err != nil {
			return err
		}
		defer cl.Close()
		return cl.Ping(within(t, time.Minute))
	}
	if err := again(); err != nil {
		t.Fatal(err)
	}
	use(second)
	if err := again(); err == nil || !strings.Contains(err.Error(), "kafka.tls.ca_file") {
		t.Fatalf("an authority that is not known: %v", err)
	}
	// A half-finished replacement keeps the last good pair.
	cert, key := second.issue("milena")
	put(t, f.ca, second.pem)
	put(t, f.cert, cert)
	if err := again(); err == nil {
		t.Fatal("the new authority accepted the old certificate")
	}
	put(t, f.key, key)
	if err := again(); err != nil {
		t.Fatalf("after the files were replaced: %v", err)
	}
	if err := os.Remove(f.key); err != nil {
		t.Fatal(err)
	}
	if err := again(); err != nil {
		t.Fatalf("while a file is missing: %v", err)
	}

	cfg.TLS.ServerName = ""
	put(t, f.key, key)
	if err := ping(t, cfg); err == nil || !strings.Contains(err.Error(), "kafka.tls.server_name") {
		t.Errorf("a name that does not stand in the certificate: %v", err)
	}
	plain := newCluster(t)
	cfg.Brokers = plain.ListenAddrs()
	cfg.DialTimeout = 500 * time.Millisecond
	if err := ping(t, cfg); err == nil {
		t.Error("TLS with a plaintext listener worked")
	}
}

func TestPasswordsInFilesAreReadAgain(t *testing.T) {
	for _, m := range []string{SASLPlain, SASLScramSHA256, SASLScramSHA512} {
		t.Run(m, func(t *testing.T) {
			c := newCluster(t, kfake.EnableSASL(), kfake.Superuser(m, "alice", "right"))
			cfg := configFor(c)
			file := filepath.Join(t.TempDir(), "password")
			put(t, file, []byte("wrong\n"))
			cfg.SASL = SASLConfig{Mechanism: strings.ToLower(m), User: "alice", PasswordFile: file}
			opts, err := cfg.Opts()
			if err != nil {
				t.Fatal(err)
			}
			try := func() error {
				cl, err := kgo.NewClient(append(opts, kgo.RequestRetries(0))...)
				if err != nil {
					t.Fatal(err)
				}
				defer cl.Close()
				return cl.Ping(within(t, time.Minute))
			}
			if try() == nil {
				t.Fatal("the wrong password was accepted")
			}
			put(t, file, []byte("right\r\n"))
			if err := try(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestOAuthTokensComeFromTheEndpointAndAreKept(t *testing.T) {
	ca := newAuthority(t, "idp")
	var asked atomic.Int32
	var form atomic.Value
	lifetime := 3600
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		user, secret, _ := r.BasicAuth()
		_ = r.ParseForm()
		form.Store(r.Form.Encode())
		if user != "milena" || secret != "s3cret" {
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_client"})
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "token", "token_type": "Bearer", "expires_in": lifetime})
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{ca.pair("127.0.0.1")}}
	srv.StartTLS()
	defer srv.Close()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "ca"), ca.pem)
	put(t, filepath.Join(dir, "secret"), []byte("old"))
	cfg := SASLConfig{Mechanism: SASLOAuthBearer, OAuth: OAuthConfig{TokenURL: srv.URL, ClientID: "milena", ClientSecretFile: filepath.Join(dir, "secret"),
		Scopes: []string{"kafka", "more"}, Audience: "cluster", CAFile: filepath.Join(dir, "ca"), Extensions: map[string]string{"logicalCluster": "lkc-1"}}}
	m, err := cfg.mechanism()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Authenticate(t.Context(), "b:9092"); err == nil || !strings.Contains(err.Error(), "kafka.sasl.oauth.token_url") || strings.Contains(err.Error(), "s3cret") {
		t.Fatalf("old secret: %v", err)
	}
	put(t, filepath.Join(dir, "secret"), []byte("s3cret\n"))
	asked.Store(0)
	for range 3 {
		_, first, err := m.Authenticate(t.Context(), "b:9092")
		if err != nil {
			t.Fatal(err)
		}
		if s := string(first); !strings.Contains(s, "auth=Bearer token") || !strings.Contains(s, "logicalCluster=lkc-1") {
			t.Errorf("%q", s)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times for a token of an hour", n)
	}
	if f := form.Load().(string); !strings.Contains(f, "audience=cluster") || !strings.Contains(f, "scope=kafka+more") || !strings.Contains(f, "grant_type=client_credentials") {
		t.Errorf("form %q", f)
	}
	lifetime = 20 // shorter than the margin: asked for each time
	m, err = cfg.mechanism()
	if err != nil {
		t.Fatal(err)
	}
	asked.Store(0)
	for range 2 {
		if _, _, err := m.Authenticate(t.Context(), "b:9092"); err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times for tokens that were about to end", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := m.Authenticate(ctx, "b:9092"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestMistakesNameKeyValueAndRemedy(t *testing.T) {
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk")
	put(t, junk, []byte("no PEM"))
	empty := filepath.Join(dir, "empty")
	put(t, empty, []byte("\n"))
	f := newCertFiles(t)
	f.write(t, newAuthority(t, "a"), "x")
	_, otherKey := newAuthority(t, "b").issue("y")
	other := filepath.Join(dir, "other.key")
	put(t, other, otherKey)
	b := []string{"localhost:9092"}
	for want, cfg := range map[string]Config{
		"kafka.brokers: is not set; give host:port":                                                                           {},
		`kafka.brokers = "http://h:1": is a URL; give h:1`:                                                                    {Brokers: []string{"http://h:1"}},
		`kafka.brokers = "h:x": is no address`:                                                                                {Brokers: []string{"h:x"}},
		`kafka.brokers = "h:70000": is no address`:                                                                            {Brokers: []string{"h:70000"}},
		`kafka.tls.ca_file = "/none": cannot be read: stat /none`:                                                             {Brokers: b, TLS: TLSConfig{CAFile: "/none"}},
		`kafka.tls.ca_file = "` + junk + `": holds no certificate; give PEM`:                                                  {Brokers: b, TLS: TLSConfig{CAFile: junk}},
		"kafka.tls.key_file: is not set, but kafka.tls.cert_file is":                                                          {Brokers: b, TLS: TLSConfig{CertFile: f.cert}},
		"kafka.tls.cert_file: is not set, but kafka.tls.key_file is":                                                          {Brokers: b, TLS: TLSConfig{KeyFile: f.key}},
		`kafka.tls.cert_file = "` + f.cert + `": does not go with kafka.tls.key_file ` + other:                                {Brokers: b, TLS: TLSConfig{CertFile: f.cert, KeyFile: other}},
		`kafka.sasl.mechanism = "GSSAPI": is not known; give PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM`: {Brokers: b, SASL: SASLConfig{Mechanism: "GSSAPI"}},
		"kafka.sasl.mechanism: is not set, but a user or password is":                                                         {Brokers: b, SASL: SASLConfig{User: "u"}},
		"kafka.sasl.user: is not set; PLAIN needs it":                                                                         {Brokers: b, SASL: SASLConfig{Mechanism: "PLAIN", Password: "p"}},
		"kafka.sasl.password: is not set; set kafka.sasl.password_file":                                                       {Brokers: b, SASL: SASLConfig{Mechanism: "SCRAM-SHA-512", User: "u"}},
		`kafka.sasl.password_file = "` + empty + `": is empty`:                                                                {Brokers: b, SASL: SASLConfig{Mechanism: "PLAIN", User: "u", PasswordFile: empty}},
		"kafka.sasl.password: is set, and kafka.sasl.password_file too":                                                       {Brokers: b, SASL: SASLConfig{Mechanism: "PLAIN", User: "u", Password: "p", PasswordFile: empty}},
		"kafka.sasl.oauth.token_url: is not set":                                                                              {Brokers: b, SASL: SASLConfig{Mechanism: "OAUTHBEARER"}},
		`kafka.sasl.oauth.token_url = "http://idp.example/t": would send the client secret unencrypted; give an https URL`:    {Brokers: b, SASL: SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{TokenURL: "http://idp.example/t"}}},
		`kafka.sasl.oauth.ca_file = "/none": cannot be read`:                                                                  {Brokers: b, SASL: SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{TokenURL: "https://h/t", ClientID: "c", ClientSecret: "s", CAFile: "/none"}}},
		`kafka.sasl.mechanism = "AWS_MSK_IAM": is not built into this program`:                                                {Brokers: b, SASL: SASLConfig{Mechanism: "AWS_MSK_IAM"}},
	} {
		_, err := cfg.Opts()
		var e *Error
		if err == nil || !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestBrokersMayLeaveOutThePort(t *testing.T) {
	got, err := parseBrokers([]string{" kafka ", "10.0.0.1:19092", "::1", "[::1]:7", "[fe80::1]"})
	if want := "kafka:9092 10.0.0.1:19092 [::1]:9092 [::1]:7 [fe80::1]:9092"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("%v %v", got, err)
	}
}

func FuzzBrokersAreAddressesOrAMistake(f *testing.F) {
	for _, s := range []string{"kafka", "h:1", "[::1]:9092", "http://h", ":", "", "a,b:1", "[", "[]", "::1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseBrokers([]string{s})
		var mistake *Error
		if err != nil {
			if !errors.As(err, &mistake) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		host, port, err := net.SplitHostPort(got[0])
		if err != nil || host == "" || port == "" {
			t.Fatalf("%q became %q", s, got)
		}
	})
}

func TestABrokerThatIsBackIsMetWithinSeconds(t *testing.T) {
	for fails := range 100 {
		if d := backoff(fails); d < 80*time.Millisecond || d > 1200*time.Millisecond {
			t.Errorf("%v after %d failures", d, fails)
		}
	}
}

func TestClientIDBeginsWithThePrefix(t *testing.T) {
	if c := (Config{}).WithDefaults(); c.ClientID != "webhooks" || c.Names.Prefix != "webhooks." {
		t.Errorf("%+v", c)
	}
}
