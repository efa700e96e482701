package egress

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/milena-project/milena/schemas"
)

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	a := &authority{cert: cert, key: key, pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a
}

func (a *authority) issue(t testing.TB, from, until time.Time, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"}, NotBefore: from, NotAfter: until}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, n)
		}
	}
	parent, signKey := a.cert, a.key
	if len(names) > 0 && names[0] == "self.example" {
		parent, signKey = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// secure serves https on this machine.
func secure(t testing.TB, cfg *tls.Config, h2 bool, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.EnableHTTP2 = h2
	srv.TLS = cfg
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

func TestTLSFailuresNameTheirReason(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	now := time.Now()
	from, until := now.Add(-time.Hour), now.Add(time.Hour)
	for name, c := range map[string]struct {
		cfg  *tls.Config
		why  string
		good bool
	}{
		"good":              {&tls.Config{Certificates: []tls.Certificate{ca.issue(t, from, until, "127.0.0.1")}}, "", true},
		"expired":           {&tls.Config{Certificates: []tls.Certificate{ca.issue(t, now.Add(-48*time.Hour), now.Add(-24*time.Hour), "127.0.0.1")}}, "expired on", false},
		"not yet valid":     {&tls.Config{Certificates: []tls.Certificate{ca.issue(t, now.Add(time.Hour), now.Add(2*time.Hour), "127.0.0.1")}}, "valid only from", false},
		"wrong host":        {&tls.Config{Certificates: []tls.Certificate{ca.issue(t, from, until, "shop.example")}}, "not for 127.0.0.1: it is for shop.example", false},
		"self-signed":       {&tls.Config{Certificates: []tls.Certificate{ca.issue(t, from, until, "self.example", "127.0.0.1")}}, "", false},
		"unknown authority": {&tls.Config{Certificates: []tls.Certificate{stranger.issue(t, from, until, "127.0.0.1")}}, "authority is not known", false},
		"TLS 1.1 only":      {&tls.Config{Certificates: []tls.Certificate{ca.issue(t, from, until, "127.0.0.1")}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "TLS 1.2", false},
		"wants a client certificate": {&tls.Config{Certificates: []tls.Certificate{ca.issue(t, from, until, "127.0.0.1")}, MaxVersion: tls.VersionTLS12,
			ClientAuth: tls.RequireAnyClientCert}, "refused the handshake", false},
	} {
		t.Run(name, func(t *testing.T) {
			srv := secure(t, c.cfg, false, func(http.ResponseWriter, *http.Request) {})
			cfg := local()
			cfg.RootCAs = ca.pool
			status, err := post(t, mustNew(t, cfg), srv.URL, time.Minute)
			if c.good {
				if status != 200 {
					t.Error(status, err)
				}
				return
			}
			wantClass(t, err, schemas.ClassTLS)
			if e, ok := errors.AsType[*TLSError](err); !ok || !strings.Contains(e.Why, c.why) {
				t.Errorf("%v, want %q", err, c.why)
			}
		})
	}
}

func TestWhatIsNotTLSIsClassTLS(t *testing.T) {
	for name, c := range map[string]struct {
		f     func(c *net.TCPConn, r *bufio.Reader)
		why   string
		class schemas.ErrorClass
	}{
		"plain HTTP": {func(c *net.TCPConn, r *bufio.Reader) {
			_, _ = r.Peek(5)
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		}, "plain HTTP", schemas.ClassTLS},
		"garbage": {func(c *net.TCPConn, r *bufio.Reader) {
			_, _ = r.Peek(5)
			_, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n")
		}, "does not speak TLS", schemas.ClassTLS},
		"closes": {func(c *net.TCPConn, r *bufio.Reader) { _, _ = r.Peek(5) }, "closed during", schemas.ClassTLS},
		"silent": {func(c *net.TCPConn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) }, "", schemas.ClassTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			s := script(t, func(_ *scripted, conn *net.TCPConn, r *bufio.Reader) { c.f(conn, r) })
			_, err := post(t, mustNew(t, local()), strings.Replace(s.url, "http:", "https:", 1), deadline(c.class))
			wantClass(t, err, c.class)
			if !strings.Contains(err.Error(), c.why) {
				t.Errorf("%v, want %q", err, c.why)
			}
		})
	}
}

func TestTLSKeepAliveSurvivesReceiversThatCloseBetweenRequests(t *testing.T) {
	ca := newAuthority(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MaxVersion: version,
			Certificates: []tls.Certificate{ca.issue(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "127.0.0.1")}})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var posts atomic.Int32
		closed := make(chan struct{}, 1)
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				wg.Go(func() {
					defer c.Close()
					r := bufio.NewReader(c)
					for i := range 2 { // two requests a connection
						req, err := http.ReadRequest(r)
						if err != nil {
							return
						}
						_, _ = io.Copy(io.Discard, req.Body)
						posts.Add(1)
						_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
						if i == 1 {
							c.Close()
						}
						closed <- struct{}{}
					}
				})
			}
		})
		cfg := local()
		cfg.RootCAs = ca.pool
		e := mustNew(t, cfg)
		for i := range 100 {
			if status, err := post(t, e, "https://"+l.Addr().String(), time.Minute); status != 200 {
				t.Fatalf("TLS %x, request %d: %d %v", version, i, status, err)
			}
			<-closed
		}
		if posts.Load() != 100 {
			t.Errorf("%d POSTs arrived, want 100", posts.Load())
		}
		l.Close()
		e.CloseIdle()
		wg.Wait()
	}
}
