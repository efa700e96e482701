package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/milena-project/milena/dispatcher"
	"github.com/milena-project/milena/internal/egress"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/request"
	"github.com/milena-project/milena/retrytopics"
	"github.com/milena-project/milena/schemas"
)

// endpoints makes the registry's records ready for sending.
type endpoints struct {
	follower *registry.Follower
	maxAge   time.Duration // of deliveries to endpoints that have none of their own
	out      *egress.Egress
}

func (e endpoints) Endpoint(id string, known *dispatcher.Endpoint) *dispatcher.Endpoint {
	rec, ok := e.follower.Endpoint(id)
	switch {
	case !ok:
		return nil
	case known != nil && known.Version == rec.Version && !isBroken(known.Signer):
		return known
	}
	return prepare(rec, e.follower.OpenSecret, e.maxAge, e.out)
}

func (e endpoints) Barrier(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	return e.follower.Barrier(ctx)
}

// barrierTimeout is how long the owner of an undecided delivery waits for an answer
// before it asks again.
const barrierTimeout = 5 * time.Second

// prepare never fails: an endpoint whose secrets cannot be used signs nothing, and
// its attempts say why.
func prepare(rec *schemas.Endpoint, open request.Opener, maxAge time.Duration, out *egress.Egress) *dispatcher.Endpoint {
	ep := &dispatcher.Endpoint{
		ID: rec.ID, Tenant: rec.Tenant, State: rec.State, Version: rec.Version,
		MaxInFlight: rec.MaxInFlight, Timeout: time.Duration(rec.Timeout), RateLimit: rec.RateLimit,
		NoCEHeaders: rec.NoCEHeaders, Owner: rec.Owner,
	}
	if rec.State != schemas.StateEnabled {
		return ep // nothing of it is sent
	}
	ep.Schedule, ep.MaxAge = prepareSchedule(rec.Retry, maxAge), time.Duration(rec.Retry.MaxAge)
	var err error
	if ep.URL, err = url.Parse(rec.URL); err != nil {
		ep.URL = &url.URL{}
		ep.Signer = broken{fmt.Errorf("endpoint %s: its URL cannot be read", rec.ID)}
		return ep
	}
	logURL := *ep.URL
	logURL.RawQuery, logURL.User = "", nil
	ep.LogURL = logURL.String()
	noting := func(endpointID, sealed string) (string, error) {
		text, err := open(endpointID, sealed)
		if err == nil {
			ep.Hidden = append(ep.Hidden, text)
		}
		return text, err
	}
	ep.Signer = prepareSigner(rec, noting)
	if ep.Header, err = request.OwnHeaders(rec, noting); err != nil {
		ep.Signer = broken{err}
	}
	if rec.Auth != nil && rec.Auth.Basic != nil {
		_, both, _ := strings.Cut(ep.Header.Get("Authorization"), " ")
		ep.Hidden = append(ep.Hidden, both)
	}
	ep.ForwardHeaders = request.Forwarded(rec)
	if rec.ClientCertificate != nil {
		if ep.Transport, err = presenting(rec, noting, out); err != nil {
			ep.Signer = broken{err}
		}
	}
	return ep
}

// presenting is the way out that presents the endpoint's client certificate.
func presenting(rec *schemas.Endpoint, open request.Opener, out *egress.Egress) (dispatcher.Transport, error) {
	key, err := open(rec.ID, rec.ClientCertificate.Key)
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair([]byte(rec.ClientCertificate.Certificate), []byte(key))
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: its client certificate: %w", rec.ID, err)
	}
	return out.As(cert, rec.ClientCertificate.Certificate+key)
}

func prepareSchedule(retry schemas.Retry, maxAge time.Duration) schedule {
	if retry.MaxAge == 0 {
		retry.MaxAge = schemas.Duration(maxAge)
	}
	policy, err := retrytopics.Compile(retry)
	if err != nil {
		policy, _ = retrytopics.Compile(schemas.Retry{MaxAge: schemas.Duration(maxAge)}) // registration refused it; the default is safe
	}
	return schedule{policy}
}

func prepareSigner(rec *schemas.Endpoint, open request.Opener) dispatcher.Signer {
	s, err := request.SignerOf(rec, open)
	if err != nil {
		return broken{err}
	}
	return s
}

// broken is the signer of an endpoint whose secrets cannot be used.
type broken struct{ err error }

func (b broken) Sign(http.Header, string, time.Time, []byte) error { return b.err }

// isBroken reports whether an endpoint's secrets could not be used. That is looked at
// again each time: the key may have come since.
func isBroken(s dispatcher.Signer) bool {
	_, is := s.(broken)
	return is
}

// schedule is a retry policy as the dispatcher asks for it.
type schedule struct{ policy retrytopics.Policy }

func (s schedule) Final(status int) bool { return s.policy.FinalStatus(status) }

func (s schedule) Next(d *schemas.Delivery, now time.Time, retryAfter time.Duration) (time.Time, schemas.Reason) {
	key := retrytopics.JitterKey{DeliveryID: d.ID(), Generation: d.Generation, Attempt: d.Attempt}
	due, verdict := s.policy.Next(key, now, d.Enqueued, retryAfter)
	switch verdict {
	case retrytopics.Exhausted:
		return time.Time{}, schemas.ReasonExhausted
	case retrytopics.Expired:
		return time.Time{}, schemas.ReasonExpired
	default:
		return due, ""
	}
}
