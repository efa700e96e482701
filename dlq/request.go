package dlq

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
	"github.com/milena-project/milena/signer"
)

// Endpoint finds an endpoint of the registry; nil if there is none.
func (s *Store) Endpoint(ctx context.Context, id string) (*schemas.Endpoint, error) {
	states := map[string]*EndpointState{id: {}}
	if err := s.readRegistry(ctx, states); err != nil {
		return nil, err
	}
	return states[id].Endpoint, nil
}

// RequestHeaders are the headers of the POST that a replay of the letter would lead
// to now, for a person who repeats it by hand. Without a key ring (nil) there is no
// signature, and signed is false.
func RequestHeaders(l *schemas.Letter, ep *schemas.Endpoint, ring *registry.KeyRing, now time.Time) (h http.Header, signed bool, err error) {
	h = http.Header{}
	e := &l.Event
	h.Set("Content-Type", "application/json")
	if e.ContentType != "" {
		h.Set("Content-Type", e.ContentType)
	}
	h.Set("Milena-Delivery-Id", l.ID())
	h.Set("Milena-Attempt", strconv.Itoa(1))
	if !ep.NoCEHeaders && !e.Structured {
		for name, value := range map[string]string{"Ce-Id": e.ID, "Ce-Source": e.Source, "Ce-Type": e.Type, "Ce-Time": e.Time,
			"Ce-Subject": e.Subject, "Ce-Specversion": e.SpecVersion} {
			if value != "" {
				h.Set(name, schemas.CEHTTPValue(value))
			}
		}
	}
	for _, p := range ep.Headers {
		h.Set(p.Name, p.Value)
	}
	if ring == nil {
		return h, false, nil
	}
	var keys []signer.Key
	for _, secret := range ep.Secrets {
		open, err := ring.Open(ep.ID, secret.Sealed)
		if err != nil {
			return h, false, fmt.Errorf("the secret of endpoint %s: %w", ep.ID, err)
		}
		keys = append(keys, signer.Key{Secret: open, ExpiresAt: secret.ExpiresAt})
	}
	sign, err := signer.New(ep.Signing, keys)
	if err != nil {
		return h, false, fmt.Errorf("signing for endpoint %s: %w", ep.ID, err)
	}
	return h, true, sign.Sign(h, l.MessageID(), now, l.Payload)
}

// Pretty is a payload for a person: JSON is indented, without reordering or rounding
// anything; false for what is no JSON.
func Pretty(payload []byte) (string, bool) {
	var b bytes.Buffer
	if json.Indent(&b, payload, "", "  ") != nil {
		return "", false
	}
	return b.String(), true
}
