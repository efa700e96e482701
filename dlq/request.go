package dlq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/internal/request"
	"github.com/milena-project/milena/schemas"
)

// Endpoint finds an endpoint of the registry; nil if there is none.
func (s *Store) Endpoint(ctx context.Context, id string) (*schemas.Endpoint, error) {
	states := map[string]*EndpointState{id: {}}
	if err := s.readRegistry(ctx, states); err != nil {
		return nil, err
	}
	st := states[id]
	if st.Why != "" {
		return nil, fmt.Errorf("endpoint %s: %s", id, st.Why)
	}
	return st.Endpoint, nil
}

// RequestHeaders are the headers of the POST that a replay of the letter would lead
// to now, for a person who repeats it by hand: those of the dispatcher, by the same
// code. Without a key ring (nil) there is no signature and no authorization, and
// whole is false.
func RequestHeaders(l *schemas.Letter, ep *schemas.Endpoint, ring *registry.KeyRing, userAgent string, now time.Time) (h http.Header, whole bool, err error) {
	post := request.Post{Delivery: &l.Delivery, DeliveryID: l.ID(), MessageID: l.MessageID(), Attempt: 1, UserAgent: userAgent,
		Traceparent: l.Traceparent, Tracestate: l.Tracestate, Forward: request.Forwarded(ep), NoCEHeaders: ep.NoCEHeaders}
	open := func(string, string) (string, error) { return "", errNoRing }
	if ring != nil {
		open = ring.Open
	}
	post.Own, err = request.OwnHeaders(ep, open)
	if err == nil && ring != nil {
		post.Signer, err = request.SignerOf(ep, open)
	}
	if err != nil && ring != nil {
		return nil, false, fmt.Errorf("the secrets of endpoint %s: %w", ep.ID, err)
	}
	h, err = post.Headers(now)
	return h, ring != nil, err
}

var errNoRing = errors.New("there is no key ring")

// Pretty is a payload for a person: JSON is indented, without reordering or rounding
// anything; false for what is no JSON.
func Pretty(payload []byte) (string, bool) {
	var b bytes.Buffer
	if json.Indent(&b, payload, "", "  ") != nil {
		return "", false
	}
	return b.String(), true
}
