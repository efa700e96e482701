package dispatcher

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/milena-project/milena/schemas"
)

// request builds the POST of a delivery as it is now: the endpoint's current URL,
// secrets and headers, and the producer's bytes.
//
// GetBody is set, so that net/http re-dials when a kept-alive connection turns out
// to be closed before a byte was written; that costs no attempt. Nothing else may
// make net/http send a POST twice: it does so for an Idempotency-Key header, which
// registration therefore refuses.
func (s *sender) request(ctx context.Context, it *item, ep *Endpoint, now time.Time) (*http.Request, error) {
	d := &it.d
	deliveryID, messageID := it.names()
	h := newHeaders(ownHeaders + len(ep.Header))
	h.set("Content-Type", "application/json")
	h.setProducers("Content-Type", d.Event.ContentType)
	h.set("User-Agent", s.userAgent)
	h.set("Milena-Delivery-Id", deliveryID)
	h.set("Milena-Attempt", strconv.Itoa(d.Attempt+1))
	// net/http adds Accept-Encoding of its own unless compression is off in the
	// transport; internal/egress turns it off.
	if !ep.NoCEHeaders && !d.Event.Structured {
		h.setEvent(&d.Event)
	}
	traceparent, tracestate := it.traceContext()
	h.setProducers("Traceparent", traceparent)
	h.setProducers("Tracestate", tracestate)
	if len(ep.ForwardHeaders) > 0 {
		for _, e := range d.Extra {
			if v := string(e.Value); ep.ForwardHeaders[e.Key] && httpguts.ValidHeaderFieldValue(v) {
				h.Header.Add(e.Key, v)
			}
		}
	}
	for name, values := range ep.Header {
		h.Header[name] = values
	}
	if err := ep.Signer.Sign(h.Header, messageID, now, d.Payload); err != nil {
		return nil, err
	}
	req := new(http.Request).WithContext(ctx)
	req.Method, req.URL, req.Host, req.Header = http.MethodPost, ep.URL, ep.URL.Host, h.Header
	req.Proto, req.ProtoMajor, req.ProtoMinor = "HTTP/1.1", 1, 1
	req.ContentLength = int64(len(d.Payload))
	if len(d.Payload) == 0 {
		req.Body = http.NoBody // with a POST, net/http sends Content-Length: 0 for it
		return req, nil
	}
	// A body whose type net/http knows leaves in one write with the headers.
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(d.Payload)), nil }
	req.Body, _ = req.GetBody()
	return req, nil
}

// traceContext is the span's that follows the attempt, else the producer's.
func (it *item) traceContext() (traceparent, tracestate string) {
	if it.span != nil {
		return it.span.Traceparent, it.span.Tracestate
	}
	return it.d.Traceparent, it.d.Tracestate
}

// ownHeaders is how many headers of ours a request has at most, those of a scheme
// that signs included.
const ownHeaders = 16

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
