package app

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/milena-project/milena/dispatcher"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/retrytopics"
	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
)

// endpoints makes the registry's records ready for sending.
type endpoints struct {
	follower *registry.Follower
	maxAge   time.Duration // of deliveries to endpoints that have none of their own
}

func (e endpoints) Endpoint(id string, known *dispatcher.Endpoint) *dispatcher.Endpoint {
	rec, ok := e.follower.Endpoint(id)
	switch {
	case !ok:
		return nil
	case known != nil && known.Version == rec.Version:
		return known
	}
	return prepare(rec, e.follower.OpenSecret, e.maxAge)
}

func (e endpoints) Barrier(done <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), barrierTimeout) //nolint:forbidigo // done is the caller's end
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-done:
			cancel()
		case <-stop:
		}
	}()
	return e.follower.Barrier(ctx)
}

// barrierTimeout is how long the owner of an undecided delivery waits for an answer
// before it asks again.
const barrierTimeout = 5 * time.Second

// opener decrypts a sealed secret of an endpoint.
type opener func(endpointID, sealed string) (string, error)

// prepare never fails: an endpoint whose secrets cannot be used signs nothing, and
// its attempts say why.
func prepare(rec *schemas.Endpoint, open opener, maxAge time.Duration) *dispatcher.Endpoint {
	ep := &dispatcher.Endpoint{
		ID: rec.ID, Tenant: rec.Tenant, State: rec.State, Version: rec.Version,
		MaxInFlight: rec.MaxInFlight, Timeout: time.Duration(rec.Timeout), RateLimit: rec.RateLimit,
		NoCEHeaders: rec.NoCEHeaders,
	}
	if rec.State != schemas.StateEnabled {
		return ep // nothing of it is sent
	}
	var err error
	if ep.URL, err = url.Parse(rec.URL); err != nil {
		ep.URL = &url.URL{}
		ep.Signer = broken{fmt.Errorf("endpoint %s: its URL cannot be read", rec.ID)}
		return ep
	}
	logURL := *ep.URL
	logURL.RawQuery, logURL.User = "", nil
	ep.LogURL = logURL.String()
	ep.Schedule = prepareSchedule(rec.Retry, maxAge)
	ep.Signer = prepareSigner(rec, open)
	if ep.Header, err = ownHeaders(rec, open); err != nil {
		ep.Signer = broken{err}
	}
	if len(rec.ForwardHeaders) > 0 {
		ep.ForwardHeaders = make(map[string]bool, len(rec.ForwardHeaders))
		for _, h := range rec.ForwardHeaders {
			ep.ForwardHeaders[h] = true
		}
	}
	return ep
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

func prepareSigner(rec *schemas.Endpoint, open opener) dispatcher.Signer {
	keys := make([]signer.Key, 0, len(rec.Secrets))
	for _, s := range rec.Secrets {
		text, err := open(rec.ID, s.Sealed)
		if err != nil {
			return broken{err}
		}
		keys = append(keys, signer.Key{Secret: text, ExpiresAt: s.ExpiresAt})
	}
	s, err := signer.New(rec.Signing, keys)
	if err != nil {
		return broken{err}
	}
	return s
}

func ownHeaders(rec *schemas.Endpoint, open opener) (http.Header, error) {
	h := http.Header{}
	for _, p := range rec.Headers {
		h.Add(p.Name, p.Value)
	}
	if rec.Auth == nil {
		return h, nil
	}
	if rec.Auth.Bearer != "" {
		token, err := open(rec.ID, rec.Auth.Bearer)
		if err != nil {
			return nil, err
		}
		h.Set("Authorization", "Bearer "+token)
	}
	if b := rec.Auth.Basic; b != nil {
		password, err := open(rec.ID, b.Password)
		if err != nil {
			return nil, err
		}
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(b.User+":"+password)))
	}
	return h, nil
}

// broken is the signer of an endpoint whose secrets cannot be used.
type broken struct{ err error }

func (b broken) Sign(http.Header, string, time.Time, []byte) error { return b.err }

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
