package dispatcher

import (
	"bytes"
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
func (s *sender) request(it *item, ep *Endpoint, now time.Time) (*http.Request, error) {
	d := &it.d
	deliveryID, messageID := it.names()
	h := make(http.Header, 16+len(ep.Header))
	setHeader(h, "Content-Type", "application/json")
	setProducers(h, "Content-Type", d.Event.ContentType)
	setHeader(h, "User-Agent", s.userAgent)
	setHeader(h, "Milena-Delivery-Id", deliveryID)
	setHeader(h, "Milena-Attempt", strconv.Itoa(d.Attempt+1))
	// net/http adds Accept-Encoding of its own unless compression is off in the
	// transport; internal/egress turns it off.
	if !ep.NoCEHeaders && !d.Event.Structured {
		setEventHeaders(h, &d.Event)
	}
	setProducers(h, "Traceparent", d.Traceparent)
	setProducers(h, "Tracestate", d.Tracestate)
	if len(ep.ForwardHeaders) > 0 {
		for _, e := range d.Extra {
			if v := string(e.Value); ep.ForwardHeaders[e.Key] && httpguts.ValidHeaderFieldValue(v) {
				h.Add(e.Key, v)
			}
		}
	}
	for name, values := range ep.Header {
		h[name] = values
	}
	if err := ep.Signer.Sign(h, messageID, now, d.Payload); err != nil {
		return nil, err
	}
	req := &http.Request{
		Method: http.MethodPost, URL: ep.URL, Host: ep.URL.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(d.Payload)),
	}
	if len(d.Payload) == 0 {
		req.Body = http.NoBody // with a POST, net/http sends Content-Length: 0 for it
		return req, nil
	}
	// A body whose type net/http knows leaves in one write with the headers.
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(d.Payload)), nil }
	req.Body, _ = req.GetBody()
	return req, nil
}

// setEventHeaders adds the CloudEvents HTTP binding's binary mode headers.
func setEventHeaders(h http.Header, e *schemas.Event) {
	setHeader(h, "Ce-Id", schemas.CEHTTPValue(e.ID))
	setHeader(h, "Ce-Source", schemas.CEHTTPValue(e.Source))
	setHeader(h, "Ce-Type", schemas.CEHTTPValue(e.Type))
	version := e.SpecVersion
	if version == "" {
		version = "1.0"
	}
	setProducers(h, "Ce-Specversion", version)
	if e.Time != "" {
		setHeader(h, "Ce-Time", schemas.CEHTTPValue(e.Time))
	}
	if e.Subject != "" {
		setHeader(h, "Ce-Subject", schemas.CEHTTPValue(e.Subject))
	}
}

// setHeader sets a header whose name is in canonical form already.
func setHeader(h http.Header, canonicalName, value string) { h[canonicalName] = []string{value} }

// setProducers sets a header to what a producer wrote, unless that is empty or no
// header value at all (RFC 9110, section 5.5): an odd header costs itself only.
func setProducers(h http.Header, canonicalName, value string) {
	if value != "" && httpguts.ValidHeaderFieldValue(value) {
		setHeader(h, canonicalName, value)
	}
}
