package dispatcher

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/milena-project/milena/schemas"
)

const (
	maxBodyRead     = 16 << 10        // bytes of an answer's body that are read at all
	maxBodyKept     = 2 << 10         // bytes of it that an attempt record keeps
	maxHeadersKept  = 20              // headers of it that an attempt record keeps
	bodyTime        = 1 * time.Second // an answer's body that takes longer is dropped with its connection
	maxHeaderLength = 256             // bytes of one kept header value
)

// Classifier sorts a transport's error by its type.
type Classifier func(err error) schemas.ErrorClass

// sender makes attempts: exactly one POST each, no loop and no policy.
type sender struct {
	transport Transport
	classify  Classifier
	userAgent string
}

// post sends one delivery to its endpoint and reports what came back. It returns
// when the answer is in, the endpoint's deadline has passed or ctx has ended.
func (s *sender) post(ctx context.Context, it *item, ep *Endpoint) result {
	r := result{started: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, ep.timeout())
	defer cancel()
	req, err := s.request(ctx, it, ep, r.started)
	if err != nil {
		r.class, r.text = schemas.ClassInternal, err.Error()
		return r
	}
	way := s.transport
	if ep.Transport != nil {
		way = ep.Transport
	}
	var connected atomic.Int64
	resp, err := way.Send(req, &connected) //nolint:bodyclose // readBody closes it
	if ns := connected.Load(); ns != 0 {
		r.firstByte = time.Unix(0, ns)
	}
	if err != nil {
		r.duration = time.Since(r.started)
		r.class, r.text = s.classifyError(ctx, err)
		r.text = ep.hide(r.text) // it may quote what came in place of HTTP
		return r
	}
	if resp.StatusCode < 100 || resp.StatusCode > 599 {
		r.class, r.text = schemas.ClassProtocol, "status "+strconv.Itoa(resp.StatusCode)+" is none of HTTP's"
	}
	r.status = resp.StatusCode
	r.retryAfter = parseRetryAfter(resp.Header, time.Now())
	r.readBody(resp, ep, cancel)
	r.duration = time.Since(r.started)
	return r
}

// classifyError tells a deadline of ours from one of the caller's: ctx is the
// attempt's own context, whose cause says which.
func (s *sender) classifyError(ctx context.Context, err error) (schemas.ErrorClass, string) {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return schemas.ClassTimeout, "no answer within the endpoint's timeout"
	case ctx.Err() != nil:
		return schemas.ClassCancelled, "cut off: " + context.Cause(ctx).Error()
	}
	return s.classify(err), err.Error()
}

// readBody reads at most maxBodyRead bytes within bodyTime. A body that ends in
// that gives its connection back; any other is closed with it. The status has
// decided already, so whatever goes wrong here changes nothing.
func (r *result) readBody(resp *http.Response, ep *Endpoint, cancel context.CancelFunc) {
	defer func() { _ = resp.Body.Close() }()
	failed := !r.delivered()
	if failed {
		r.headers = keepHeaders(resp.Header, ep)
	}
	if resp.Body == http.NoBody || resp.ContentLength == 0 {
		return
	}
	stop := time.AfterFunc(bodyTime, cancel)
	defer stop.Stop()
	limited := io.LimitReader(resp.Body, maxBodyRead)
	if !failed {
		_, _ = io.Copy(io.Discard, limited)
		return
	}
	read, _ := io.ReadAll(limited)
	kept := ep.hide(string(read)) // before it is cut, or half a secret would stay
	if len(kept) > maxBodyKept {
		kept, r.truncated = kept[:maxBodyKept], true
	}
	r.body = printable(kept)
}

// keepHeaders keeps what explains a failure first, then the rest by name.
func keepHeaders(h http.Header, ep *Endpoint) []schemas.Pair {
	names := slices.SortedFunc(maps.Keys(h), func(a, b string) int {
		if x, y := explains(a), explains(b); x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	kept := make([]schemas.Pair, 0, min(len(h), maxHeadersKept))
	for _, name := range names {
		for _, v := range h[name] {
			if len(kept) == maxHeadersKept {
				return kept
			}
			v = ep.hide(v)
			kept = append(kept, schemas.Pair{Name: name, Value: printable(v[:min(len(v), maxHeaderLength)])})
		}
	}
	return kept
}

func explains(header string) bool {
	return header == "Location" || header == "Retry-After" || header == "Www-Authenticate"
}

// printable makes valid UTF-8 without control characters, so that what a receiver
// answered can be stored and shown on a terminal.
func printable(s string) string {
	clean := func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if r < ' ' || (r >= 0x7f && r < 0xa0) {
			return utf8.RuneError
		}
		return r
	}
	return strings.Map(clean, strings.ToValidUTF8(s, "\ufffd"))
}
