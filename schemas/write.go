package schemas

import (
	"strconv"
	"time"
)

// Headers is what stands on the record when Milena writes the delivery to
// deliveries, hold or a tier; the key is EndpointID, the value Payload. Event id
// and source are always there, so that no later hop can give another default.
//
// With a zero Origin the record is new, as a producer writes it (a sample, a
// resend): of Milena's headers only milena-not-before stands on it, and of a resend
// milena-resend-of and milena-run. The result is the caller's; values of Extra are shared.
func (d *Delivery) Headers() []Header {
	w := newHeaderWriter(d, 0)
	w.delivery(d)
	return w.done(d)
}

// headerWriter writes all values into one buffer, so that a record costs two
// allocations.
type headerWriter struct {
	headers []Header
	buf     []byte
}

// maxOwnHeaders is the number of headers that a delivery can have beside Extra.
const maxOwnHeaders = 26

const numberLen = 20 // of any int64

func newHeaderWriter(d *Delivery, more int) headerWriter {
	e := &d.Event
	text := len(e.ID) + len(e.Source) + len(e.Type) + len(e.Time) + len(e.Subject) + len(e.Tenant) +
		len(e.SpecVersion) + len(e.ContentType) + len(d.Traceparent) + len(d.Tracestate) + len(d.ErrorClass) +
		min(len(d.Error), MaxErrorLen) + len(d.Run) + len(d.Trace) + len(d.ResendOf) + len(d.Origin.Topic)
	return headerWriter{
		headers: make([]Header, 0, maxOwnHeaders+more+len(d.Extra)),
		buf:     make([]byte, 0, text+more*numberLen+14*numberLen),
	}
}

func (w *headerWriter) delivery(d *Delivery) {
	e := &d.Event
	w.text(HeaderCESpecVersion, e.SpecVersion)
	w.text(HeaderCEID, e.ID)
	w.text(HeaderCESource, e.Source)
	w.text(HeaderCEType, e.Type)
	w.text(HeaderCETime, e.Time)
	w.text(HeaderCESubject, e.Subject)
	w.text(HeaderCETenant, e.Tenant)
	w.text(HeaderContentType, e.ContentType)
	w.text(HeaderTraceparent, d.Traceparent)
	w.text(HeaderTracestate, d.Tracestate)
	w.time(HeaderNotBefore, d.NotBefore)
	w.text(HeaderResendOf, d.ResendOf)
	if d.Origin.IsZero() {
		if d.ResendOf != "" {
			w.text(HeaderRun, d.Run)
		}
		return
	}
	w.origin(d.Origin)
	w.number(HeaderAttempt, int64(d.Attempt))
	w.number(HeaderGeneration, int64(d.Generation))
	w.time(HeaderEnqueued, d.Enqueued)
	w.time(HeaderFirstAttempt, d.FirstAttempt)
	w.time(HeaderHopUntil, d.HopUntil)
	w.time(HeaderReleased, d.Released)
	w.number(HeaderForwards, int64(d.Forwards))
	w.number(HeaderClaim, d.Claim)
	w.number(HeaderLastStatus, int64(d.LastStatus))
	w.text(HeaderErrorClass, string(d.ErrorClass))
	w.text(HeaderError, CleanError(d.Error))
	w.text(HeaderRun, d.Run)
	w.text(HeaderTrace, d.Trace)
}

func (w *headerWriter) done(d *Delivery) []Header { return append(w.headers, d.Extra...) }

func (w *headerWriter) origin(o Origin) {
	start := len(w.buf)
	w.buf = o.append(w.buf)
	w.add(HeaderOrigin, start)
}

func (w *headerWriter) text(key, value string) {
	if value == "" {
		return
	}
	start := len(w.buf)
	w.buf = append(w.buf, value...)
	w.add(key, start)
}

func (w *headerWriter) number(key string, n int64) {
	if n == 0 {
		return
	}
	start := len(w.buf)
	w.buf = strconv.AppendInt(w.buf, n, 10)
	w.add(key, start)
}

func (w *headerWriter) time(key string, t time.Time) {
	if !t.IsZero() {
		w.number(key, t.UnixMilli())
	}
}

// add caps the value, so that whoever appends to it does not write into the next.
func (w *headerWriter) add(key string, start int) {
	w.headers = append(w.headers, Header{Key: key, Value: w.buf[start:len(w.buf):len(w.buf)]})
}
