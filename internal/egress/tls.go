package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"
)

func tlsConfig(c Config, protos ...string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		RootCAs:            c.RootCAs,
		NextProtos:         protos,
		ClientSessionCache: tls.NewLRUClientSessionCache(1024),
	}
}

// dialTLS makes the connection for an https URL. The handshake is made here and
// not by net/http, because what fails in it has no type there.
func (e *Egress) dialTLS(ctx context.Context, addr string, conf *tls.Config) (net.Conn, error) {
	raw, err := e.connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(addr)
	ctx, cancel := context.WithTimeout(ctx, e.cfg.DialTimeout)
	defer cancel()
	c, err := handshake(ctx, raw, conf, host)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func handshake(ctx context.Context, raw net.Conn, base *tls.Config, host string) (*tls.Conn, error) {
	cfg := base.Clone()
	cfg.ServerName = strings.TrimSuffix(host, ".")
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("TLS handshake with %s: %w", host, ctx.Err())
		}
		return nil, &TLSError{Host: host, Why: tlsWhy(err, host), Err: err}
	}
	return conn, nil
}

// tlsWhy says in words what a handshake failed on.
func tlsWhy(err error, host string) string {
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		switch {
		case e.Reason == x509.Expired && time.Now().After(e.Cert.NotAfter):
			return "the certificate expired on " + e.Cert.NotAfter.UTC().Format(time.DateOnly)
		case e.Reason == x509.Expired:
			return "the certificate is valid only from " + e.Cert.NotBefore.UTC().Format(time.DateOnly)
		}
		return "the certificate is not valid: " + e.Error()
	}
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Sprintf("the certificate is not for %s: it is for %s", host, certNames(e.Certificate))
	}
	if e, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		if e.Cert != nil && selfSigned(e.Cert) {
			return "the certificate is self-signed, or its authority is not known here"
		}
		return "the certificate's authority is not known here, or an intermediate certificate is missing"
	}
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		if string(e.RecordHeader[:]) == "HTTP/" {
			return "the server answers plain HTTP on this port"
		}
		return "the server does not speak TLS on this port"
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate is not accepted: " + e.Err.Error()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return "the connection was closed during the handshake"
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" {
		return "the server refused the handshake: " + e.Err.Error() + " (at least TLS 1.2 is needed)"
	}
	return "the handshake failed: " + err.Error() + " (at least TLS 1.2 is needed)"
}

// selfSigned looks at the signature alone: most certificates that sign themselves do
// not say that they may sign any.
func selfSigned(c *x509.Certificate) bool {
	return c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil
}

func certNames(c *x509.Certificate) string {
	names := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	switch {
	case len(names) == 0:
		return "no name at all"
	case len(names) > 4:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:4], ", "), len(names)-4)
	}
	return strings.Join(names, ", ")
}
