package devmode

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/milena-project/milena/internal/egress"
	"github.com/milena-project/milena/internal/registry"
	"github.com/milena-project/milena/schemas"
)

// Forward is the id of the endpoint of ForwardTo.
const Forward = "forward"

// schedule is short, so that retries and a dead letter are seen within a minute.
var schedule = []schemas.Duration{schemas.Duration(2 * time.Second), schemas.Duration(5 * time.Second), schemas.Duration(10 * time.Second)}

// endpoint is one that a run needs.
type endpoint struct {
	id, url, what string
	types         []string
	maxAge        time.Duration // 0: the default
	secret        string        // as it was registered
}

// forward is the endpoint of ForwardTo.
func (d *dev) forward() endpoint {
	return endpoint{id: Forward, url: d.cfg.ForwardTo, types: []string{"*"}, what: "your receiver; gets every sample event"}
}

// samples are the endpoints on the echo receiver.
func (d *dev) samples() []endpoint {
	url := func(id string) string { return "http://" + d.receiver.Addr + "/" + id }
	return []endpoint{
		{id: Good, url: url(Good), types: []string{"*"}, what: "takes everything"},
		{id: Flaky, url: url(Flaky), types: []string{"payment.*", "shipment.*"}, what: "answers 500 to 30 %"},
		// Its breaker opens within seconds, so that no schedule would end in a minute:
		// what is held dies of its age at the next probe, and can be replayed.
		{id: Dead, url: url(Dead), types: []string{"pull_request.*"}, maxAge: 20 * time.Second, what: "answers 503 for the first minute; a delivery older than 20 s is a dead letter"},
	}
}

// register makes the endpoints that are not there yet, brings the URLs of the
// others up to date, and tells the receiver their secrets.
func (d *dev) register(ctx context.Context) ([]endpoint, error) {
	ring, err := registry.ParseKeyRing(d.loaded.Keyring)
	if err != nil {
		return nil, err
	}
	guard, err := egress.New(d.loaded.EgressConfig())
	if err != nil {
		return nil, err
	}
	admin := registry.NewAdmin(d.kafka, ring, registry.AdminOptions{CheckURL: guard.CheckURL, MaxAge: d.loaded.Retry.MaxAge})
	defer admin.Close()
	var list []endpoint
	for _, e := range d.samples() {
		if d.cfg.ForwardTo != "" {
			// Not this run's, but what an earlier one left waiting goes on.
			if _, err := admin.Get(ctx, e.id); errors.Is(err, registry.ErrNotFound) {
				continue
			}
		}
		if err := ensure(ctx, admin, ring, &e); err != nil {
			return nil, fmt.Errorf("endpoint %s: %w", e.id, err)
		}
		list = append(list, e)
		if e.secret == "" {
			continue
		}
		if err := d.receiver.Expect(e.id, e.secret); err != nil {
			return nil, err
		}
	}
	if d.cfg.ForwardTo == "" {
		return list, nil
	}
	e := d.forward()
	if err := ensure(ctx, admin, ring, &e); err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", e.id, err)
	}
	d.secret = e.secret
	return []endpoint{e}, nil
}

func ensure(ctx context.Context, admin *registry.Admin, ring *registry.KeyRing, e *endpoint) error {
	retry := schemas.Retry{Schedule: schedule, MaxAge: schemas.Duration(e.maxAge)}
	by := registry.Actor{Who: "milena dev", Door: "dev"}
	have, err := admin.Get(ctx, e.id)
	if errors.Is(err, registry.ErrNotFound) {
		made, err := admin.Create(ctx, by, schemas.Endpoint{ID: e.id, URL: e.url, EventTypes: e.types, Description: e.what,
			Retry: retry})
		if errors.Is(err, registry.ErrExists) {
			e.what = "was deleted, and ids are never used again; another --data-dir has it anew"
			return nil
		}
		if err != nil {
			return err
		}
		e.secret = made.Secrets[0].Secret
		return nil
	}
	if err != nil {
		return err
	}
	if e.secret, err = secretOf(ring, have); err != nil {
		return err
	}
	if have.URL == e.url && slices.Equal(have.EventTypes, e.types) && reflect.DeepEqual(have.Retry, retry) {
		return nil
	}
	_, err = admin.Update(ctx, by, e.id, 0, func(ep *registry.Endpoint) error {
		ep.URL, ep.EventTypes, ep.Retry = e.url, e.types, retry
		return nil
	})
	return err
}

// secretOf opens the newest secret. Only here: the key ring and the receiver are
// on one machine.
func secretOf(ring *registry.KeyRing, ep *schemas.Endpoint) (string, error) {
	for _, s := range ep.Secrets {
		if s.PublicKey == "" {
			return ring.Open(ep.ID, s.Sealed)
		}
	}
	return "", errors.New("it has no secret that the Standard Webhooks scheme can use")
}

// explainForward says how the own receiver verifies.
func (d *dev) explainForward(line func(format string, args ...any)) {
	line("Your receiver at %s verifies with the secret  %s", d.cfg.ForwardTo, d.secret)
	line("  Go      v, err := verify.New(verify.Config{Secrets: []string{secret}})    // signer/verify")
	line("          msg, err := v.Verify(r.Header, body)")
	line("  Python  Webhook(secret).verify(body, headers)    # pip install standardwebhooks")
	line("  Node    new Webhook(secret).verify(body, headers)    // npm install standardwebhooks")
	line("  By hand WEBHOOK_SECRET=… milena signature verify --data @body -H 'webhook-id: …' …")
	line("  The body must be the raw bytes that came in, not JSON that was written again.")
}
