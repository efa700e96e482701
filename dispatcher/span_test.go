package dispatcher

import (
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/milena-project/milena/schemas"
)

func TestASpanFollowsOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		type end struct {
			status      int
			class       schemas.ErrorClass
			interrupted bool
		}
		var begun []int
		var ends []end
		w.d.Hooks.Attempting = func(d *schemas.Delivery, _ *Endpoint) *Span {
			w.mu.Lock()
			defer w.mu.Unlock()
			begun = append(begun, d.Attempt)
			d.Trace = "last span"
			return &Span{Traceparent: "of the span", Tracestate: "s=1", End: func(status int, class schemas.ErrorClass, interrupted bool) {
				w.mu.Lock()
				defer w.mu.Unlock()
				ends = append(ends, end{status, class, interrupted})
			}}
		}
		var carried []string
		w.endpoint("e")
		w.answer = func(r *http.Request) (*http.Response, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			carried = append(carried, r.Header.Get("Traceparent"), r.Header.Get("Tracestate"))
			return status(503), nil
		}
		w.send("e", 1, schemas.Header{Key: schemas.HeaderTraceparent, Value: []byte("of the producer")})
		w.see(func() {
			if len(begun) != 1 || begun[0] != 0 || len(ends) != 1 || ends[0] != (end{status: 503}) {
				t.Errorf("begun %v, ended %v", begun, ends)
			}
			if carried[0] != "of the span" || carried[1] != "s=1" {
				t.Errorf("the request carries %q", carried)
			}
			if p := w.parked[0]; p.Trace != "last span" || p.Traceparent != "of the producer" {
				t.Errorf("parked with %q and %q", p.Trace, p.Traceparent)
			}
		})
		w.frozen.Store(true)
		w.answers(func(*http.Request) (*http.Response, error) { return nil, errRefused })
		w.endpoint("f")
		w.send("f", 1)
		w.see(func() {
			if len(ends) < 2 || ends[1].status != 0 || !ends[1].interrupted {
				t.Errorf("an attempt that we slept through ended as %+v", ends)
			}
		})
		w.frozen.Store(false)
	})
}

// What an attempt costs is the same with and without a span's strings: whatever a
// span costs is its maker's, and without one there is none.
func TestWithoutASpanAnAttemptAllocatesNothingForOne(t *testing.T) {
	u, err := url.Parse("http://receiver.test/e")
	if err != nil {
		t.Fatal(err)
	}
	s := &sender{userAgent: "Milena"}
	ep := &Endpoint{ID: "e", URL: u, Signer: &world{}}
	measure := func(d schemas.Delivery, span *Span) float64 {
		it := &item{d: d, span: span}
		it.names()
		return testing.AllocsPerRun(200, func() {
			if _, err := s.request(t.Context(), it, ep, time.Time{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	d := schemas.Delivery{EndpointID: "e", Payload: []byte("{}"), Traceparent: "00-1", Tracestate: "a=b"}
	if without, with := measure(d, nil), measure(d, &Span{Traceparent: "00-2", Tracestate: "a=b"}); without != with {
		t.Errorf("%.0f allocations without a span, %.0f with one", without, with)
	}
}
