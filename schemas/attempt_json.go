package schemas

import (
	"math"
	"strconv"
	"time"
)

// MaxAttemptLen bounds the JSON of an Attempt, in bytes.
const MaxAttemptLen = 8 << 10

// AppendAttempt appends a as JSON, equal in meaning to encoding/json's: one record
// of the attempts topic. It is always valid JSON and at most MaxAttemptLen bytes:
// what is too long loses first the end of the response's body, then its last
// headers (response_truncated says so), then the ends of long attributes. Invalid
// UTF-8 becomes U+FFFD, NaN and infinities 0. It allocates only to grow b.
func AppendAttempt(b []byte, a *Attempt) []byte {
	start := len(b)
	// A field that reaches this limit makes the record too long by itself, so what
	// is within the bound was not cut.
	whole := attemptCut{field: MaxAttemptLen, headers: math.MaxInt, body: MaxAttemptLen}
	if b = appendAttempt(b, a, whole); len(b)-start <= MaxAttemptLen {
		return b
	}
	return appendAttemptCut(b[:start], a)
}

// attemptCut says how many bytes of JSON each long field, all response headers
// together, and the response's body may have.
type attemptCut struct {
	field, headers, body int
	truncated            bool
}

const (
	cutField   = 400  // 16 of them, their names and the numbers are less than MaxAttemptLen
	cutReserve = 100  // names and punctuation of what is added in the next step
	largeBase  = 6144 // beyond it the attributes are cut too
)

func appendAttemptCut(b []byte, a *Attempt) []byte {
	start := len(b)
	size := func(cut attemptCut) int { return len(appendAttempt(b, a, cut)) - start } // b has grown: there is room
	cut := attemptCut{field: MaxAttemptLen, truncated: a.ResponseBody != "" || len(a.ResponseHeaders) > 0}
	base := size(cut)
	if base > largeBase {
		cut.field = cutField
		base = size(cut)
	}
	cut.headers = max(0, MaxAttemptLen-base-cutReserve)
	cut.body = max(0, MaxAttemptLen-size(cut)-cutReserve)
	return appendAttempt(b, a, cut)
}

func appendAttempt(b []byte, a *Attempt, cut attemptCut) []byte {
	w := attemptWriter{b: append(b, '{'), cut: cut}
	w.text("delivery_id", a.DeliveryID)
	w.text("message_id", a.MessageID)
	w.text("endpoint_id", a.EndpointID)
	w.optional("tenant", a.Tenant)
	w.text("event_id", a.EventID)
	w.text("source", a.Source)
	w.text("type", a.Type)
	w.optional("subject", a.Subject)
	w.text("outcome", string(a.Outcome))
	w.optional("reason", string(a.Reason))
	w.number("attempt", a.Number)
	w.optionalNumber("generation", a.Generation)
	w.optional("run", a.Run)
	w.optional("resend_of", a.ResendOf)
	w.text("origin", a.Origin)
	w.optionalNumber("status", a.Status)
	w.optional("error_class", string(a.ErrorClass))
	w.optional("error", a.Error)
	w.optional("url", a.URL)
	w.time("started", a.Started)
	w.float("duration_ms", a.Duration)
	w.float("dispatch_delay_ms", a.Delay)
	w.optionalTime("not_before", a.NotBefore)
	w.optionalTime("next_try", a.NextTry)
	w.number("request_bytes", a.Bytes)
	w.response(a)
	return append(w.b, '}')
}

type attemptWriter struct {
	b   []byte
	cut attemptCut
}

func (w *attemptWriter) name(name string) {
	if w.b[len(w.b)-1] != '{' {
		w.b = append(w.b, ',')
	}
	w.b = append(w.b, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, '"', ':')
}

func (w *attemptWriter) text(name, s string) {
	w.name(name)
	w.b = appendJSONString(w.b, s, w.cut.field)
}

func (w *attemptWriter) optional(name, s string) {
	if s != "" {
		w.text(name, s)
	}
}

func (w *attemptWriter) number(name string, n int) {
	w.name(name)
	w.b = strconv.AppendInt(w.b, int64(n), 10)
}

func (w *attemptWriter) optionalNumber(name string, n int) {
	if n != 0 {
		w.number(name, n)
	}
}

func (w *attemptWriter) float(name string, f float64) {
	w.name(name)
	w.b = appendJSONFloat(w.b, f)
}

func (w *attemptWriter) time(name string, t time.Time) {
	w.name(name)
	w.b = append(w.b, '"')
	w.b = appendTime(w.b, t)
	w.b = append(w.b, '"')
}

func (w *attemptWriter) optionalTime(name string, t time.Time) {
	if !t.IsZero() {
		w.time(name, t)
	}
}

func (w *attemptWriter) response(a *Attempt) {
	truncated := a.ResponseTruncated || w.cut.truncated
	if len(a.ResponseHeaders) > 0 && w.cut.headers > 0 {
		w.name("response_headers")
		w.b = append(w.b, '[')
		limit := w.cut.headers
		for i := range a.ResponseHeaders {
			h := &a.ResponseHeaders[i]
			start := len(w.b)
			if i > 0 {
				w.b = append(w.b, ',')
			}
			w.b = append(w.b, `{"name":`...)
			w.b = appendJSONString(w.b, h.Name, MaxAttemptLen)
			w.b = append(w.b, `,"value":`...)
			w.b = appendJSONString(w.b, h.Value, MaxAttemptLen)
			w.b = append(w.b, '}')
			if limit -= len(w.b) - start; limit < 0 {
				w.b = w.b[:start]
				break
			}
		}
		w.b = append(w.b, ']')
	}
	if a.ResponseBody != "" && w.cut.body > 0 {
		w.name("response_body")
		w.b = appendJSONString(w.b, a.ResponseBody, w.cut.body)
	}
	if truncated {
		w.name("response_truncated")
		w.b = append(w.b, "true"...)
	}
}
