package flowtest

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

// Two customers behind one host, each with a certificate of its own, and one without:
// no connection carries what another has to be known by, and the keys are sealed.
func TestEachEndpointPresentsItsOwnClientCertificate(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	var mu sync.Mutex
	came := map[string]map[string]int{} // by path: who was presented
	receiver := http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		who := r.TLS.PeerCertificates[0].Subject.CommonName
		mu.Lock()
		defer mu.Unlock()
		if came[r.URL.Path] == nil {
			came[r.URL.Path] = map[string]int{}
		}
		came[r.URL.Path][who]++
	})}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	conf := &tls.Config{
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: h.ca.Pool(), NextProtos: []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{h.ca.Issue(t, testkit.CertSpec{Hosts: []string{receiverHost}}).TLS},
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = receiver.Serve(tls.NewListener(ln, conf)) }()
	t.Cleanup(func() { _ = receiver.Close(); <-done })
	url := strings.Replace("https://"+ln.Addr().String(), "127.0.0.1", receiverHost, 1)

	h.strictAdmin()
	keys := map[string]string{}
	for _, id := range []string{"alice", "bob", "nobody"} {
		ep := registry.Endpoint{ID: id, URL: url + "/" + id, EventTypes: []string{"*"}}
		if id != "nobody" {
			c := h.ca.Issue(t, testkit.CertSpec{Name: id})
			ep.ClientCertificate = &schemas.ClientCertificate{Certificate: string(c.CertPEM), Key: string(c.KeyPEM)}
			keys[id] = string(c.KeyPEM)
		}
		_, err := h.admin.Create(t.Context(), operator, ep)
		must(t, err)
	}
	h.ready(h.start())
	const n = 10
	for _, id := range []string{"alice", "bob", "nobody"} {
		testkit.Produce(t, h.client, h.numbered(id, map[bool]int{true: 1, false: n}[id == "nobody"])...)
	}
	history := h.awaitDelivered(2 * n)
	h.settled(20 * time.Second)
	mu.Lock()
	defer mu.Unlock()
	for _, id := range []string{"alice", "bob"} {
		if got := came["/"+id]; len(got) != 1 || got[id] < n {
			t.Errorf("%s was presented as %v", id, got)
		}
	}
	for id, log := range history {
		// The receiver's alert, or the end of the connection behind it: with TLS 1.3 the
		// request is being written when it comes.
		if log[0].EndpointID == "nobody" && log[0].ErrorClass != schemas.ClassTLS && log[0].ErrorClass != schemas.ClassReset {
			t.Errorf("%s without a certificate: %s %s", id, log[0].ErrorClass, log[0].Error)
		}
	}
	for _, topic := range []string{h.names().Endpoints(), h.names().Audit(), h.names().Attempts()} {
		for _, rec := range h.read(topic) {
			for id, key := range keys {
				text, _ := json.Marshal(key)
				if strings.Contains(string(rec.Value), string(text[1:len(text)-1])) {
					t.Errorf("the key of %s stands in %s", id, topic)
				}
			}
		}
	}
}
