package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// DefaultOverlap is for how long an old secret goes on signing beside its successor.
const DefaultOverlap = 24 * time.Hour

// AdminOptions are the rules of an installation.
type AdminOptions struct {
	// CheckURL returns the canonical form of an endpoint's URL or says why it is
	// refused; egress.CheckURL in production. Required.
	CheckURL func(raw string) (canonical string, err error)
	// MaxAge is the longest max_age that an endpoint may have: retry.max_age, which the
	// topics' retention is made for. Default 96h.
	MaxAge time.Duration
	// MaxPerTenant bounds the endpoints of one tenant that are not deleted; those
	// without tenant count as one tenant. 0: no bound.
	MaxPerTenant int
}

// Admin changes endpoints, each change by a compare-and-swap (Table.Swap, whose
// errors it returns) together with its audit record. Other errors are
// *ValidationError, ErrNotFound, ErrExists, *ConflictError and *MissingKeyError (the
// ring is not the installation's, so what it seals could not be opened). Methods are
// safe for concurrent use, also from many processes.
type Admin struct {
	table *Table
	audit string
	ring  *KeyRing
	opts  AdminOptions
}

// Result is an endpoint after a change, with the secrets that the change made. They
// are shown once and cannot be had again.
type Result struct {
	Endpoint *Endpoint
	Secrets  []NewSecret
}

// NewSecret is a secret as its owner has to keep it.
type NewSecret struct {
	Secret    string `json:"secret"`               // whsec_…, or whsk_… which only the sender needs
	PublicKey string `json:"public_key,omitempty"` // whpk_…: what the receiver of an ed25519 scheme verifies with
}

// NewAdmin makes an Admin. A nil ring can read, disable and delete, but not make or keep secrets.
func NewAdmin(cfg kafka.Config, ring *KeyRing, opts AdminOptions) *Admin {
	cfg = cfg.WithDefaults()
	return &Admin{table: OpenTable(cfg, cfg.Names.Endpoints()), audit: cfg.Names.Audit(), ring: ring, opts: opts}
}

// Close ends the background reading.
func (a *Admin) Close() { a.table.Close() }

// Get reads an endpoint as of now; ErrNotFound also for a deleted one.
func (a *Admin) Get(ctx context.Context, id string) (*Endpoint, error) {
	var ep *Endpoint
	err := a.table.Read(ctx, func(rows Rows) (err error) {
		ep, err = live(rows, id)
		return err
	})
	return ep, err
}

// List reads all endpoints that are not deleted, in the order of their ids, and the
// records that are unreadable, each a *UnreadableError.
func (a *Admin) List(ctx context.Context) (list []*Endpoint, bad []error, err error) {
	err = a.table.Read(ctx, func(rows Rows) error {
		for row := range rows.All() {
			switch ep, err := row.Endpoint(); {
			case err != nil:
				bad = append(bad, err)
			case ep.State != schemas.StateDeleted:
				list = append(list, ep)
			}
		}
		return nil
	})
	slices.SortFunc(list, func(a, b *Endpoint) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(bad, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return list, bad, err
}

// Endpoint reads a row of the endpoints topic. Its error is a *UnreadableError.
func (r Row) Endpoint() (*Endpoint, error) {
	ep := new(Endpoint)
	err := json.Unmarshal(r.Value, ep)
	switch {
	case err != nil:
	case ep.ID != r.Key:
		err = fmt.Errorf("its id is %.64q, its key another", ep.ID)
	case !ValidID(ep.ID):
		err = errors.New("its id is none: use A-Z a-z 0-9 _ -, 1 to 64 of them")
	}
	if err != nil {
		return nil, &UnreadableError{Key: r.Key, Offset: r.Offset, Err: err}
	}
	return ep, nil
}

func live(rows Rows, id string) (*Endpoint, error) {
	row, ok := rows.Get(id)
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	ep, err := row.Endpoint()
	if err != nil {
		return nil, err
	}
	if ep.State == schemas.StateDeleted {
		return nil, fmt.Errorf("%w: %s was deleted on %s", ErrNotFound, id, ep.UpdatedAt.Format(time.RFC3339))
	}
	return ep, nil
}

// change is one operation on one endpoint. edit works on a copy of the registered
// one and may be called several times.
type change struct {
	by        Actor
	action    string
	reason    string
	ifVersion int64 // 0: any
	edit      func(ep *Endpoint, now time.Time) error
}

// before is the registered endpoint. One that cannot be read can still be deleted:
// its version is then taken for the highest that it can have had, with a record for each.
func (c change) before(rows Rows, id string) (*Endpoint, error) {
	ep, err := live(rows, id)
	if bad, ok := errors.AsType[*UnreadableError](err); ok && c.action == ActionDelete {
		return &Endpoint{ID: id, Version: bad.Offset}, nil
	}
	return ep, err
}

// apply makes a change of an endpoint that exists and returns what it is then.
func (a *Admin) apply(ctx context.Context, id string, c change) (*Endpoint, error) {
	var after *Endpoint
	err := a.table.Swap(ctx, func(rows Rows) ([]Change, error) {
		before, err := c.before(rows, id)
		if err != nil {
			return nil, err
		}
		if c.ifVersion != 0 && c.ifVersion != before.Version {
			return nil, &ConflictError{ID: id, Have: before.Version, Want: c.ifVersion}
		}
		if after, err = c.before(rows, id); err != nil { // a copy that shares nothing
			return nil, err
		}
		now := time.Now().UTC().Truncate(time.Millisecond)
		if err := c.edit(after, now); err != nil {
			return nil, err
		}
		if err := a.checkRing(rows, before, after); err != nil {
			return nil, err
		}
		after.Version = before.Version + 1
		after.UpdatedAt = now
		return a.records(c, now, before, after)
	})
	if err != nil {
		return nil, err
	}
	return after, nil
}

// records are the endpoint's record and its audit record.
func (a *Admin) records(c change, now time.Time, before, after *Endpoint) ([]Change, error) {
	value, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", after.ID, err)
	}
	if len(value) > maxRecord {
		return nil, &ValidationError{Field: "endpoint", Value: fmt.Sprintf("%d bytes", len(value)),
			Remedy: fmt.Sprintf("the whole record may have at most %d bytes", maxRecord)}
	}
	audit, err := auditRecord(c.by, c.action, c.reason, now, before, after)
	if err != nil {
		return nil, err
	}
	audit.Topic = a.audit
	return []Change{{Key: after.ID, Value: value}, audit}, nil
}
