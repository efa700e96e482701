package dispatcher

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/milena-project/milena/internal/request"
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
	traceparent, tracestate := it.traceContext()
	post := request.Post{Delivery: d, DeliveryID: deliveryID, MessageID: messageID, Attempt: d.Attempt + 1, UserAgent: s.userAgent,
		Traceparent: traceparent, Tracestate: tracestate,
		Own: ep.Header, Forward: ep.ForwardHeaders, NoCEHeaders: ep.NoCEHeaders, Signer: ep.Signer}
	h, err := post.Headers(now)
	if err != nil {
		return nil, err
	}
	req := new(http.Request).WithContext(ctx)
	req.Method, req.URL, req.Host, req.Header = http.MethodPost, ep.URL, ep.URL.Host, h
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
