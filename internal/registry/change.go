package registry

import (
	"context"
	"crypto/rand"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/milena-project/milena/schemas"
)

// Create registers an endpoint and makes its secrets. An empty id is chosen here.
// Of ep the caller fills in what can be configured; passwords and tokens of Auth as
// plain text. secrets are the owner's own, newest first, for who comes from
// elsewhere; without any, new ones are made for the schemes of ep.
func (a *Admin) Create(ctx context.Context, by Actor, ep Endpoint, secrets ...string) (Result, error) {
	var res Result
	if ep.ID == "" {
		ep.ID = "ep_" + strings.ToLower(rand.Text())
	}
	if len(ep.Secrets) > 0 {
		return res, &ValidationError{Field: "secrets", Value: "(given)", Remedy: "leave it out; secrets are made, or given beside the endpoint"}
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	ep.Version, ep.CreatedAt, ep.UpdatedAt = 1, now, now
	if ep.State == "" {
		ep.State = schemas.StateEnabled
	}
	if err := a.validate(&ep); err != nil {
		return res, err
	}
	made, err := a.firstSecrets(&ep, secrets, now)
	if err != nil {
		return res, err
	}
	if err := a.seal(nil, &ep); err != nil {
		return res, err
	}
	err = a.table.Swap(ctx, func(rows Rows) ([]Change, error) {
		if _, taken := rows.Get(ep.ID); taken {
			return nil, fmt.Errorf("%w: %s", ErrExists, ep.ID)
		}
		if err := a.checkTenant(rows, ep.Tenant); err != nil {
			return nil, err
		}
		if err := a.checkRing(rows, nil, &ep); err != nil {
			return nil, err
		}
		return a.records(change{by: by, action: ActionCreate}, now, nil, &ep)
	})
	if err != nil {
		return res, err
	}
	return Result{Endpoint: &ep, Secrets: made}, nil
}

// checkTenant counts all endpoints of the tenant; it is only called where there is a bound.
func (a *Admin) checkTenant(rows Rows, tenant string) error {
	if a.opts.MaxPerTenant <= 0 {
		return nil
	}
	n := 0
	for row := range rows.All() {
		ep, err := row.Endpoint()
		if err == nil && ep.Tenant == tenant && ep.State != schemas.StateDeleted {
			n++
		}
	}
	if n < a.opts.MaxPerTenant {
		return nil
	}
	return &ValidationError{Field: "tenant", Value: tenant,
		Remedy: fmt.Sprintf("it has %d endpoints and may have at most %d; delete one first", n, a.opts.MaxPerTenant)}
}

// Update changes the configuration of an endpoint at the version that the caller
// has seen (0: at any). edit may be called several times and must have no effects
// but on its argument; its error ends the update. Id, tenant, state, secrets and
// times are not its to change. Schemes that need a kind of secret that the endpoint
// has not got yet get a new one.
func (a *Admin) Update(ctx context.Context, by Actor, id string, ifVersion int64, edit func(*Endpoint) error) (Result, error) {
	var res Result
	ep, err := a.apply(ctx, id, change{by: by, action: ActionUpdate, ifVersion: ifVersion, edit: func(ep *Endpoint, now time.Time) error {
		res.Secrets = nil // of a try that another writer overtook
		before, err := clone(ep)
		if err != nil {
			return err
		}
		if err := edit(ep); err != nil {
			return err
		}
		if err := untouched(before, ep); err != nil {
			return err
		}
		if err := a.validate(ep); err != nil {
			return err
		}
		if err := a.seal(before, ep); err != nil {
			return err
		}
		if reflect.DeepEqual(before.Signing, ep.Signing) {
			return nil
		}
		res.Secrets, err = a.missingSecrets(ep, now)
		return err
	}})
	if err != nil {
		return Result{}, err
	}
	res.Endpoint = ep
	return res, nil
}

func untouched(before, after *Endpoint) error {
	for _, f := range []struct {
		name       string
		was, is    any
		remedyText string
	}{
		{"id", before.ID, after.ID, "an id cannot be changed; create another endpoint"},
		{"tenant", before.Tenant, after.Tenant, "an endpoint stays with its tenant; create another one"},
		{"state", before.State, after.State, "use enable, disable or delete"},
		{"version", before.Version, after.Version, "it is counted here"},
		{"secrets", before.Secrets, after.Secrets, "use rotate-secret"},
		{"created_at", before.CreatedAt, after.CreatedAt, "it cannot be changed"},
	} {
		if !reflect.DeepEqual(f.was, f.is) {
			value := fmt.Sprint(f.is)
			if f.name == "secrets" {
				value = "(changed)"
			}
			return &ValidationError{Field: f.name, Value: value, Remedy: f.remedyText}
		}
	}
	return nil
}

// Enable makes deliveries go out again, also after an automatic disabling, which its
// newer version overrides. It counts as a change even if the endpoint was enabled.
func (a *Admin) Enable(ctx context.Context, by Actor, id string) (*Endpoint, error) {
	return a.apply(ctx, id, change{by: by, action: ActionEnable, edit: func(ep *Endpoint, _ time.Time) error {
		ep.State, ep.Reason = schemas.StateEnabled, ""
		return nil
	}})
}

// Disable stops deliveries: what arrives becomes a dead letter endpoint_disabled.
func (a *Admin) Disable(ctx context.Context, by Actor, id, reason string) (*Endpoint, error) {
	if err := checkText("reason", reason, maxText); err != nil {
		return nil, err
	}
	return a.apply(ctx, id, change{by: by, action: ActionDisable, reason: reason, edit: func(ep *Endpoint, _ time.Time) error {
		ep.State, ep.Reason = schemas.StateDisabled, reason
		return nil
	}})
}

// Delete leaves a record that says so and blocks the id for ever; secrets, URL and
// everything else that was configured are gone from it.
func (a *Admin) Delete(ctx context.Context, by Actor, id string, ifVersion int64) error {
	_, err := a.apply(ctx, id, change{by: by, action: ActionDelete, ifVersion: ifVersion, edit: func(ep *Endpoint, _ time.Time) error {
		*ep = Endpoint{ID: ep.ID, Tenant: ep.Tenant, State: schemas.StateDeleted, CreatedAt: ep.CreatedAt}
		return nil
	}})
	return err
}

// seal encrypts what the caller gave as plain text.
func (a *Admin) seal(before, ep *Endpoint) error {
	if err := a.sealCertificate(before, ep); err != nil {
		return err
	}
	return a.sealAuth(before, ep)
}

func (a *Admin) sealAuth(before, ep *Endpoint) error {
	if ep.Auth == nil {
		return nil
	}
	var was schemas.Auth
	if before != nil && before.Auth != nil {
		was = *before.Auth
	}
	var err error
	if ep.Auth.Bearer != "" && ep.Auth.Bearer != was.Bearer { // the same text is the sealed one that edit left alone
		if ep.Auth.Bearer, err = a.ring.Seal(ep.ID, ep.Auth.Bearer); err != nil {
			return err
		}
	}
	if b := ep.Auth.Basic; b != nil && b.Password != "" && (was.Basic == nil || b.Password != was.Basic.Password) {
		if b.Password, err = a.ring.Seal(ep.ID, b.Password); err != nil {
			return err
		}
	}
	return nil
}
