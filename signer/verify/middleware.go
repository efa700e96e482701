package verify

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Defaults of Options.
const (
	DefaultMaxBody    = 2 << 20 // bytes; twice what a sender's broker takes by default
	DefaultRetryAfter = 5 * time.Second
)

// Options are the choices of Middleware. The zero value verifies and remembers
// nothing.
type Options struct {
	Store      Store         // nil: repeats reach the handler
	MaxBody    int64         // bytes; default DefaultMaxBody
	RetryAfter time.Duration // told to a sender whose message is in progress; default DefaultRetryAfter

	// OnRefused is called for every request that does not reach the handler because
	// it could not be verified (an *Error) or because the Store failed. Default: none.
	OnRefused func(r *http.Request, err error)
}

type contextKey struct{}

// FromContext returns the verified message of a request that Middleware let through.
func FromContext(ctx context.Context) (Message, bool) {
	m, ok := ctx.Value(contextKey{}).(Message)
	return m, ok
}

// Middleware lets only verified requests through to a handler, each message once
// when there is a Store. The handler finds the raw body in r.Body, as ever, and in
// FromContext.
//
// The answers of its own: 401 not verified; 413 body over MaxBody; 400 body cut
// off; 200 handled before; 425 with Retry-After while it is being handled; 503 with
// Retry-After when the Store fails. A message counts as handled when the handler
// answered below 300; after any other answer or a panic its claim is released and
// the sender's next attempt reaches the handler again.
//
// 425 (Too Early, RFC 8470: what might be a repeat is not processed now) because every
// sender that takes some statuses for final takes 408, 425, 429 and 5xx for none: after
// a 409 the message would be lost if the handler then failed. And not 503, which stops
// a sender for all messages where it is about one.
//
// The error wraps ErrConfig: a Store needs a scheme with an id header.
func Middleware(v *Verifier, o Options) (func(http.Handler) http.Handler, error) {
	if o.Store != nil && v.c.IDHeader == "" {
		return nil, misconfigured("a store needs message ids, and scheme %s has no id header: name one in Config.IDHeader", v.c.Scheme)
	}
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.RetryAfter <= 0 {
		o.RetryAfter = DefaultRetryAfter
	}
	return func(next http.Handler) http.Handler {
		return &gate{v: v, o: o, next: next}
	}, nil
}

type gate struct {
	v    *Verifier
	o    Options
	next http.Handler
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, g.o.MaxBody))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			g.refuse(w, r, http.StatusRequestEntityTooLarge, &Error{Reason: ErrTooLarge, Detail: "over " + strconv.FormatInt(g.o.MaxBody, 10) + " bytes"})
			return
		}
		g.refuse(w, r, http.StatusBadRequest, &Error{Reason: ErrMalformed, Detail: "the body was cut off"})
		return
	}
	m, err := g.v.Verify(r.Header, body)
	if err != nil {
		g.refuse(w, r, http.StatusUnauthorized, err)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), contextKey{}, m))
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	if g.o.Store == nil {
		g.next.ServeHTTP(w, r)
		return
	}
	switch state, err := g.o.Store.Claim(r.Context(), m.ID); {
	case err != nil:
		g.later(w)
		g.refuse(w, r, http.StatusServiceUnavailable, err)
	case state == Done:
		w.WriteHeader(http.StatusOK)
	case state == InProgress:
		g.later(w)
		http.Error(w, "this message is being handled", http.StatusTooEarly)
	default:
		g.handle(w, r, m.ID)
	}
}

// handle runs the handler under a claim. Whatever becomes of it, also when the
// sender has gone away meanwhile, the claim is ended.
func (g *gate) handle(w http.ResponseWriter, r *http.Request, id string) {
	rec := &recorder{ResponseWriter: w}
	ctx := context.WithoutCancel(r.Context())
	returned := false
	defer func() {
		end := g.o.Store.Release
		if returned && rec.status < 300 {
			end = g.o.Store.Confirm
		}
		if err := end(ctx, id); err != nil && g.o.OnRefused != nil {
			g.o.OnRefused(r, err)
		}
	}()
	g.next.ServeHTTP(rec, r)
	returned = true
}

func (g *gate) later(w http.ResponseWriter) {
	secs := int64((g.o.RetryAfter + time.Second - 1) / time.Second)
	w.Header().Set("Retry-After", strconv.FormatInt(secs, 10))
}

func (g *gate) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	if g.o.OnRefused != nil {
		g.o.OnRefused(r, err)
	}
	text := http.StatusText(status)
	if e, ok := errors.AsType[*Error](err); ok {
		text = e.Error() // for the sender's attempt log: it names no secret
	}
	http.Error(w, text, status)
}

// recorder keeps the status; 0 counts as 200, as net/http has it.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 { // 1xx are not the answer
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the writer below.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
