package registry

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"
)

// maxPEM bounds a client certificate with its chain, and its key.
const maxPEM = 16 << 10

// sealCertificate checks a client certificate that is new and seals its key. The key
// that was there before is sealed already; it belongs to the certificate that was
// there before and to no other.
func (a *Admin) sealCertificate(before, ep *Endpoint) error {
	c := ep.ClientCertificate
	if c == nil {
		return nil
	}
	if !strings.HasPrefix(ep.URL, "https:") {
		return &ValidationError{"client_certificate", "(given)", "it is presented in TLS: give an https URL, or leave it out"}
	}
	if before != nil && before.ClientCertificate != nil && *before.ClientCertificate == *c {
		return nil
	}
	if len(c.Certificate) > maxPEM || len(c.Key) > maxPEM {
		return &ValidationError{"client_certificate", "(given)", fmt.Sprintf("certificate and key may have at most %d bytes each", maxPEM)}
	}
	pair, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.Key))
	if err != nil {
		return &ValidationError{"client_certificate", "(hidden)", "give a PEM certificate, its chain behind it, and the unencrypted PEM key that belongs to it: " + err.Error()}
	}
	if end := pair.Leaf.NotAfter; end.Before(time.Now()) {
		return &ValidationError{"client_certificate", pair.Leaf.Subject.String(), "it expired on " + end.UTC().Format(time.DateOnly) + "; give one that is valid"}
	}
	c.Key, err = a.ring.Seal(ep.ID, c.Key)
	return err
}
