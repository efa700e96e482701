package egress

import (
	"container/list"
	"crypto/sha256"
	"crypto/tls"
	"net/http"
	"sync"
	"sync/atomic"
)

const (
	// maxIdentities bounds how many client certificates have connections of their own
	// kept at the same time.
	maxIdentities = 256
	// idleOfIdentity bounds the idle connections of one of them, so that all together
	// keep no more than the others do.
	idleOfIdentity = 16
)

// identities are the ways out that present a client certificate, each with
// connections and TLS sessions of its own: a connection that was made as one customer
// must never carry the request of another.
type identities struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]*list.Element
	order list.List // of *Identity, the last used first
}

// Identity is an Egress that presents a client certificate to https receivers which
// ask for one. It is safe for concurrent use.
type Identity struct {
	egress    *Egress
	key       [sha256.Size]byte
	transport *http.Transport
}

// As returns the way out that presents cert; chainAndKey identifies it, such as the
// PEM text that it was read from. Two calls with the same share their connections.
func (e *Egress) As(cert tls.Certificate, chainAndKey string) (*Identity, error) {
	key := sha256.Sum256([]byte(chainAndKey))
	s := &e.identities
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.known[key]; at != nil {
		s.order.MoveToFront(at)
		return at.Value.(*Identity), nil //nolint:forcetypeassert // nothing else is put in
	}
	conf := tlsConfig(e.cfg, "h2", "http/1.1") // with a session cache of its own
	conf.Certificates = []tls.Certificate{cert}
	transport, err := e.newTransport(conf, idleOfIdentity)
	if err != nil {
		return nil, err
	}
	id := &Identity{egress: e, key: key, transport: transport}
	if s.known == nil {
		s.known = map[[sha256.Size]byte]*list.Element{}
	}
	s.known[key] = s.order.PushFront(id)
	for s.order.Len() > maxIdentities {
		oldest := s.order.Remove(s.order.Back()).(*Identity) //nolint:forcetypeassert // nothing else is put in
		delete(s.known, oldest.key)
		oldest.transport.CloseIdleConnections() // who has it still may go on with it
	}
	return id, nil
}

// Send is Egress.Send with the certificate.
func (i *Identity) Send(req *http.Request, connected *atomic.Int64) (*http.Response, error) {
	return i.egress.sendBy(i.transport, req, connected)
}

// closeIdle closes the idle connections of all.
func (s *identities) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := s.order.Front(); at != nil; at = at.Next() {
		at.Value.(*Identity).transport.CloseIdleConnections() //nolint:forcetypeassert // nothing else is put in
	}
}
