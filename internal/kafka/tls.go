package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// TLSConfig says how connections to brokers are encrypted. Naming any file turns
// it on. The broker's certificate is always verified.
type TLSConfig struct {
	Enabled    bool   // kafka.tls.enabled; also on when any other field is set
	CAFile     string // kafka.tls.ca_file: PEM; default: the system's authorities
	CertFile   string // kafka.tls.cert_file: PEM of the client certificate and its chain
	KeyFile    string // kafka.tls.key_file: PEM of its key
	ServerName string // kafka.tls.server_name: verified in place of the broker's host name
}

func (c TLSConfig) on() bool {
	return c.Enabled || c.CAFile != "" || c.CertFile != "" || c.KeyFile != "" || c.ServerName != ""
}

// dialer is Config's way to open connections: TCP, then TLS where it is on.
func (c Config) dialer() (Dialer, error) {
	base := c.Dialer
	if base == nil {
		base = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	secure := func(_ context.Context, conn net.Conn, _ string) (net.Conn, error) { return conn, nil }
	if c.TLS.on() {
		files := &tlsFiles{cfg: c.TLS}
		if _, err := files.config(""); err != nil {
			return nil, err
		}
		secure = files.handshake
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
		defer cancel()
		conn, err := base(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return secure(ctx, conn, addr)
	}, nil
}

// tlsFiles reads certificates again when their files have changed. The handshake
// asks it each time, so a renewed certificate is used by the next connection.
type tlsFiles struct {
	cfg TLSConfig

	mu    sync.Mutex // guards what follows
	ca    watched
	cert  watched
	key   watched
	roots *x509.CertPool
	pair  *tls.Certificate
}

func (f *tlsFiles) handshake(ctx context.Context, conn net.Conn, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	cfg, err := f.config(host)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	c := tls.Client(conn, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS with broker %s: %w%s", addr, err, tlsHint(err))
	}
	return c, nil
}

// config is the configuration as the files are now. While a file is being
// replaced (half written, missing for a moment) the last good one is kept.
func (f *tlsFiles) config(host string) (*tls.Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.reload(); err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.cfg.ServerName, RootCAs: f.roots}
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	if f.pair != nil {
		pair := f.pair
		// A callback, because tls would otherwise send no certificate at all to a
		// broker whose list of authorities does not name ours, and the broker's
		// complaint would hide which one it was.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	return cfg, nil
}

func (f *tlsFiles) reload() error {
	if f.cfg.CAFile != "" {
		data, changed, err := f.ca.read(f.cfg.CAFile)
		switch {
		case err != nil && f.roots == nil:
			return &Error{Key: "kafka.tls.ca_file", Value: f.cfg.CAFile, Why: "cannot be read", Err: err,
				Remedy: "give a PEM file with the certificate of the authority that signed the brokers'"}
		case err == nil && changed:
			pool := x509.NewCertPool()
			if pool.AppendCertsFromPEM(data) {
				f.roots = pool
			} else if f.roots == nil {
				return &Error{Key: "kafka.tls.ca_file", Value: f.cfg.CAFile, Why: "holds no certificate",
					Remedy: "give PEM (-----BEGIN CERTIFICATE-----); convert a JKS with keytool -exportcert -rfc"}
			}
		}
	}
	if f.cfg.CertFile == "" && f.cfg.KeyFile == "" {
		return nil
	}
	if f.cfg.CertFile == "" {
		return &Error{Key: "kafka.tls.cert_file", Why: "is not set, but kafka.tls.key_file is", Remedy: "set both or neither"}
	}
	if f.cfg.KeyFile == "" {
		return &Error{Key: "kafka.tls.key_file", Why: "is not set, but kafka.tls.cert_file is", Remedy: "set both or neither"}
	}
	return f.reloadPair()
}

func (f *tlsFiles) reloadPair() error {
	certPEM, c1, err := f.cert.read(f.cfg.CertFile)
	if err != nil && f.pair == nil {
		return &Error{Key: "kafka.tls.cert_file", Value: f.cfg.CertFile, Why: "cannot be read", Err: err,
			Remedy: "give a PEM file with the client certificate"}
	}
	keyPEM, c2, err2 := f.key.read(f.cfg.KeyFile)
	if err2 != nil && f.pair == nil {
		return &Error{Key: "kafka.tls.key_file", Value: f.cfg.KeyFile, Why: "cannot be read", Err: err2,
			Remedy: "give a PEM file with the key of kafka.tls.cert_file"}
	}
	if err != nil || err2 != nil || !c1 && !c2 {
		return nil
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err == nil {
		f.pair = &pair
		return nil
	}
	if f.pair != nil {
		return nil // the other file of the pair is about to follow
	}
	return &Error{Key: "kafka.tls.cert_file", Value: f.cfg.CertFile, Why: "does not go with kafka.tls.key_file " + f.cfg.KeyFile,
		Err: err, Remedy: "give the PEM key (not encrypted) that belongs to that certificate"}
}

// tlsHint says what usually is wrong, for the two errors that people meet first.
func tlsHint(err error) string {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return "; set kafka.tls.ca_file to the authority that signed the brokers' certificates"
	case errors.As(err, &name):
		return "; set kafka.tls.server_name to a name that stands in the broker's certificate"
	case errors.As(err, &plain):
		return "; this listener does not speak TLS: use its TLS port, or leave out kafka.tls"
	}
	return ""
}

// watched is a file that is read again only when it looks different.
type watched struct {
	mod  time.Time
	size int64
	data []byte
}

func (w *watched) read(path string) (data []byte, changed bool, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, false, err
	}
	if w.data != nil && st.ModTime().Equal(w.mod) && st.Size() == w.size {
		return w.data, false, nil
	}
	data, err = os.ReadFile(path)
	if err != nil {
		return nil, false, err
	}
	w.data, w.mod, w.size = data, st.ModTime(), st.Size()
	return data, true, nil
}
