// Package request says which headers a POST to an endpoint has. Whoever makes one, or
// prints one for a person to repeat, asks here: dispatcher for every attempt, dlq for
// milena dlq show --curl, and internal/app to make an endpoint ready. It knows neither
// Kafka nor HTTP transports.
package request

import (
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/milena-project/milena/schemas"
)

// Signer signs a request: it adds the scheme's headers for the message id, the time
// and the body. signer.Signer is one.
type Signer interface {
	Sign(h http.Header, messageID string, t time.Time, body []byte) error
}

// Post is one request, as far as its headers depend on it.
type Post struct {
	Delivery   *schemas.Delivery
	DeliveryID string
	MessageID  string
	Attempt    int // the first is 1
	UserAgent  string

	Traceparent string // of the span that the request is; empty: none
	Tracestate  string

	Own         http.Header     // the endpoint's own headers and authorization
	Forward     map[string]bool // record headers that the endpoint wants
	NoCEHeaders bool
	Signer      Signer // nil: there is no signature
}

// Headers are the headers of the request at a time; the error is the signer's, and
// what is returned with it has no signature.
func (p *Post) Headers(now time.Time) (http.Header, error) {
	d := p.Delivery
	h := newHeaders(ownHeaders + len(p.Own))
	h.set("Content-Type", "application/json")
	h.setProducers("Content-Type", d.Event.ContentType)
	h.set("User-Agent", p.UserAgent)
	h.set("Milena-Delivery-Id", p.DeliveryID)
	h.set("Milena-Attempt", strconv.Itoa(p.Attempt))
	// net/http adds Accept-Encoding of its own unless compression is off in the
	// transport; internal/egress turns it off.
	if !p.NoCEHeaders && !d.Event.Structured {
		h.setEvent(&d.Event)
	}
	h.setProducers("Traceparent", p.Traceparent)
	h.setProducers("Tracestate", p.Tracestate)
	if len(p.Forward) > 0 {
		for _, e := range d.Extra {
			if v := string(e.Value); p.Forward[e.Key] && httpguts.ValidHeaderFieldValue(v) {
				h.Header.Add(e.Key, v)
			}
		}
	}
	for name, values := range p.Own {
		h.Header[name] = values
	}
	if p.Signer == nil {
		return h.Header, nil
	}
	return h.Header, p.Signer.Sign(h.Header, p.MessageID, now, d.Payload)
}

// ownHeaders is how many headers of ours a request usually has, those of a scheme
// that signs included. A map for more than 14 takes twice the memory.
const ownHeaders = 14

// headers is an http.Header whose values stand in one block: a request has a dozen,
// and each would be an allocation of its own.
type headers struct {
	http.Header

	values []string
}

func newHeaders(n int) headers {
	return headers{Header: make(http.Header, n), values: make([]string, 0, ownHeaders)}
}

// set sets a header whose name is in canonical form already.
func (h *headers) set(canonicalName, value string) {
	h.values = append(h.values, value)
	last := len(h.values)
	h.Header[canonicalName] = h.values[last-1 : last : last]
}

// setEvent adds the CloudEvents HTTP binding's binary mode headers.
func (h *headers) setEvent(e *schemas.Event) {
	h.set("Ce-Id", schemas.CEHTTPValue(e.ID))
	h.set("Ce-Source", schemas.CEHTTPValue(e.Source))
	h.set("Ce-Type", schemas.CEHTTPValue(e.Type))
	version := e.SpecVersion
	if version == "" {
		version = "1.0"
	}
	h.setProducers("Ce-Specversion", version)
	if e.Time != "" {
		h.set("Ce-Time", schemas.CEHTTPValue(e.Time))
	}
	if e.Subject != "" {
		h.set("Ce-Subject", schemas.CEHTTPValue(e.Subject))
	}
}

// setProducers sets a header to what a producer wrote, unless that is empty or no
// header value at all (RFC 9110, section 5.5): an odd header costs itself only.
func (h *headers) setProducers(canonicalName, value string) {
	if value != "" && httpguts.ValidHeaderFieldValue(value) {
		h.set(canonicalName, value)
	}
}
