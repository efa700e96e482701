package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/internal/testkit"
	"github.com/milena-project/milena/schemas"
)

var operator = Actor{Who: "milena", Door: "cli"}

func anyURL(raw string) (string, error) {
	if !strings.HasPrefix(raw, "http") {
		return "", errors.New("use http or https")
	}
	return raw, nil
}

func newAdmin(t testing.TB, cfg kafka.Config, ring *KeyRing) *Admin {
	t.Helper()
	a := NewAdmin(cfg, ring, AdminOptions{CheckURL: anyURL})
	t.Cleanup(a.Close)
	return a
}

func sample(id string) Endpoint {
	return Endpoint{ID: id, URL: "https://example.com/hook", EventTypes: []string{"order.*"}}
}

func mustCreate(t testing.TB, a *Admin, ep Endpoint) Result {
	t.Helper()
	res, err := a.Create(t.Context(), operator, ep)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestLifeOfAnEndpoint(t *testing.T) {
	cfg := newConfig(t)
	ring := ringOf(t, "k1")
	a := newAdmin(t, cfg, ring)
	f := follow(t, cfg, ring, FollowerOptions{})
	ctx := t.Context()

	created := mustCreate(t, a, sample(""))
	id := created.Endpoint.ID
	if !ValidID(id) || len(created.Secrets) != 1 || !strings.HasPrefix(created.Secrets[0].Secret, "whsec_") {
		t.Fatalf("created %+v", created)
	}
	// What was returned is committed: a barrier later it is known everywhere.
	if err := f.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	ep, ok := f.Endpoint(id)
	if !ok {
		t.Fatal("the follower does not know it")
	}
	if opened, err := f.OpenSecret(id, ep.Secrets[0].Sealed); err != nil || opened != created.Secrets[0].Secret {
		t.Fatalf("the registered secret opens to %q, %v", opened, err)
	}

	updated, err := a.Update(ctx, operator, id, 1, func(ep *Endpoint) error { ep.MaxInFlight = 3; return nil })
	if err != nil || updated.Endpoint.Version != 2 || updated.Endpoint.MaxInFlight != 3 || len(updated.Secrets) != 0 {
		t.Fatalf("Update: %+v, %v", updated, err)
	}
	var conflict *ConflictError
	if _, err := a.Update(ctx, operator, id, 1, func(*Endpoint) error { return nil }); !errors.As(err, &conflict) ||
		conflict.Have != 2 || conflict.Want != 1 || !errors.Is(err, ErrConflict) {
		t.Fatalf("an update of an old version: %v", err)
	}
	disabled, err := a.Disable(ctx, operator, id, "the owner asked for it")
	if err != nil || disabled.State != schemas.StateDisabled || disabled.Reason == "" || disabled.Version != 3 {
		t.Fatalf("Disable: %+v, %v", disabled, err)
	}
	enabled, err := a.Enable(ctx, operator, id)
	if err != nil || enabled.State != schemas.StateEnabled || enabled.Reason != "" || enabled.Version != 4 {
		t.Fatalf("Enable: %+v, %v", enabled, err)
	}
	rotated, err := a.RotateSecret(ctx, operator, id, time.Hour)
	if err != nil || len(rotated.Endpoint.Secrets) != 2 || len(rotated.Secrets) != 1 || rotated.Secrets[0] == created.Secrets[0] {
		t.Fatalf("RotateSecret: %+v, %v", rotated, err)
	}
	if left := time.Until(rotated.Endpoint.Secrets[1].ExpiresAt); left < 50*time.Minute || left > time.Hour {
		t.Fatalf("the old secret ends in %s", left)
	}
	rotated, err = a.RotateSecret(ctx, operator, id, 0)
	if err != nil || len(rotated.Endpoint.Secrets) != 1 {
		t.Fatalf("RotateSecret without overlap: %+v, %v", rotated, err)
	}

	if err := a.Delete(ctx, operator, id, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Get(ctx, id); !errors.Is(err, ErrNotFound) {
		t.Fatalf("Get after Delete: %v", err)
	}
	if _, err := a.Create(ctx, operator, sample(id)); !errors.Is(err, ErrExists) {
		t.Fatalf("the id of a deleted endpoint was given again: %v", err)
	}
	if list, _, err := a.List(ctx); err != nil || len(list) != 0 {
		t.Fatalf("List: %v, %v", list, err)
	}
	if err := f.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	if ep, ok := f.Endpoint(id); !ok || ep.State != schemas.StateDeleted || ep.Version != 7 || len(ep.Secrets) != 0 || ep.URL != "" {
		t.Fatalf("the deleted record: %+v", ep)
	}

	var actions []string
	for _, rec := range readAll(t, cfg, cfg.Names.Audit()) {
		var au schemas.Audit
		if err := json.Unmarshal(rec.Value, &au); err != nil {
			t.Fatal(err)
		}
		actions = append(actions, fmt.Sprint(au.Version, " ", au.Action))
		if au.Who != "milena" || au.Door != "cli" || au.Subject != "endpoint/"+id || string(rec.Key) != au.Subject || au.At.IsZero() {
			t.Errorf("audit record: %+v", au)
		}
		if strings.Contains(string(rec.Value), "v1.k1.") {
			t.Errorf("an audit record holds a secret: %s", rec.Value)
		}
	}
	want := []string{"1 create", "2 update", "3 disable", "4 enable",
		"5 rotate-secret", "6 rotate-secret", "7 delete"}
	if !slices.Equal(actions, want) {
		t.Fatalf("audit: %q", actions)
	}
}

// readAll reads the committed records of a topic.
func readAll(t *testing.T, cfg kafka.Config, topic string) []*kgo.Record {
	t.Helper()
	cl := newClient(t, cfg, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	end, err := listOffset(t.Context(), cl, topic, offsetCommittedEnd)
	if err != nil {
		t.Fatal(err)
	}
	var recs []*kgo.Record
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience*10*time.Second)
	defer cancel()
	for pos := int64(0); pos < end; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
		for _, r := range fetches.Records() {
			pos = r.Offset + 1
			if !r.Attrs.IsControl() {
				recs = append(recs, r)
			}
		}
	}
	return recs
}

func TestConcurrentAdminsLoseNoChange(t *testing.T) {
	cfg := newConfig(t)
	ring := ringOf(t, "k1")
	const admins, endpoints = 8, 2
	first := newAdmin(t, cfg, ring)
	for e := range endpoints {
		mustCreate(t, first, sample(fmt.Sprint("e", e)))
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	created := 0
	for n := range admins {
		a := newAdmin(t, cfg, ring)
		wg.Go(func() {
			for e := range endpoints {
				// Each adds a type of its own; read-modify-write by hand at one of the endpoints.
				add := func(ep *Endpoint) error {
					ep.EventTypes = append(ep.EventTypes, fmt.Sprint("type", n))
					return nil
				}
				id := fmt.Sprint("e", e)
				for {
					version := int64(0)
					if e == 1 {
						ep, err := a.Get(t.Context(), id)
						if err != nil {
							t.Error(err)
							return
						}
						version = ep.Version
					}
					_, err := a.Update(t.Context(), operator, id, version, add)
					if errors.Is(err, ErrConflict) {
						continue
					}
					if err != nil {
						t.Error(err)
					}
					break
				}
			}
			switch _, err := a.Create(t.Context(), operator, sample("contested")); {
			case err == nil:
				mu.Lock()
				created++
				mu.Unlock()
			case !errors.Is(err, ErrExists):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if created != 1 {
		t.Errorf("%d admins created the same endpoint", created)
	}
	for e := range endpoints {
		ep, err := first.Get(t.Context(), fmt.Sprint("e", e))
		if err != nil {
			t.Fatal(err)
		}
		if len(ep.EventTypes) != admins+1 || ep.Version != admins+1 {
			t.Errorf("%s has version %d and types %v", ep.ID, ep.Version, ep.EventTypes)
		}
	}
	versions := map[string]int64{}
	for _, rec := range readAll(t, cfg, cfg.Names.Endpoints()) {
		ep, err := Row{Key: string(rec.Key), Value: rec.Value}.Endpoint()
		if err != nil {
			t.Fatal(err)
		}
		if ep.Version != versions[ep.ID]+1 {
			t.Errorf("%s went from version %d to %d", ep.ID, versions[ep.ID], ep.Version)
		}
		versions[ep.ID] = ep.Version
	}
}

// A 410 disables at the version that it was seen at (in the health topic), and an
// enable or a rotation makes a newer one, so neither takes the other away.
func TestRotationAndEnableMakeANewerVersionAndKeepEachOther(t *testing.T) {
	cfg := newConfig(t)
	ring := ringOf(t, "k1")
	operatorSide, ownerSide := newAdmin(t, cfg, ring), newAdmin(t, cfg, ring)
	before := mustCreate(t, operatorSide, sample("e")).Endpoint
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := operatorSide.RotateSecret(t.Context(), operator, "e", DefaultOverlap); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		if _, err := ownerSide.Disable(t.Context(), operator, "e", "410 gone"); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	ep, err := operatorSide.Get(t.Context(), "e")
	if err != nil || ep.Version != before.Version+2 || len(ep.Secrets) != 2 || ep.State != schemas.StateDisabled {
		t.Fatalf("a change was lost: %+v, %v", ep, err)
	}
}

func TestSecretsOfEachKind(t *testing.T) {
	cfg := newConfig(t)
	ring := ringOf(t, "k1")
	a := newAdmin(t, cfg, ring)
	ep := sample("both")
	ep.Signing.Schemes = []schemas.Scheme{schemas.SchemeStandard, schemas.SchemeStandardEd25519}
	res := mustCreate(t, a, ep)
	if len(res.Secrets) != 2 || !strings.HasPrefix(res.Secrets[0].Secret, "whsec_") || !strings.HasPrefix(res.Secrets[1].PublicKey, "whpk_") ||
		res.Endpoint.Secrets[1].PublicKey != res.Secrets[1].PublicKey {
		t.Fatalf("secrets: %+v", res)
	}
	mustCreate(t, a, sample("grows"))
	res, err := a.Update(t.Context(), operator, "grows", 0, func(ep *Endpoint) error {
		ep.Signing.Schemes = []schemas.Scheme{schemas.SchemeStandardEd25519}
		return nil
	})
	if err != nil || len(res.Secrets) != 1 || res.Secrets[0].PublicKey == "" || len(res.Endpoint.Secrets) != 2 {
		t.Fatalf("a new scheme: %+v, %v", res, err)
	}
	own := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	res, err = a.Create(t.Context(), operator, sample("own"), own)
	if err != nil || len(res.Secrets) != 0 || len(res.Endpoint.Secrets) != 1 {
		t.Fatalf("an own secret: %+v, %v", res, err)
	}
	if got, err := ring.Open("own", res.Endpoint.Secrets[0].Sealed); err != nil || got != own {
		t.Fatalf("it opens to %q, %v", got, err)
	}
	var invalid *ValidationError
	if _, err = a.Create(t.Context(), operator, sample("short"), "whsec_c2hvcnQ="); !errors.As(err, &invalid) || strings.Contains(err.Error(), "c2hvcnQ") {
		t.Fatalf("a short secret: %v", err)
	}
}

func TestAuthIsSealedAndKept(t *testing.T) {
	cfg := newConfig(t)
	ring := ringOf(t, "k1")
	a := newAdmin(t, cfg, ring)
	ep := sample("e")
	ep.Auth = &schemas.Auth{Basic: &schemas.BasicAuth{User: "milena", Password: "v1.k1.looks-sealed"}}
	res := mustCreate(t, a, ep)
	if got, err := ring.Open("e", res.Endpoint.Auth.Basic.Password); err != nil || got != "v1.k1.looks-sealed" {
		t.Fatalf("the password opens to %q, %v", got, err)
	}
	after, err := a.Update(t.Context(), operator, "e", 0, func(ep *Endpoint) error { ep.Description = "x"; return nil })
	if err != nil || after.Endpoint.Auth.Basic.Password != res.Endpoint.Auth.Basic.Password {
		t.Fatalf("an update of something else: %+v, %v", after.Endpoint.Auth.Basic, err)
	}
	after, err = a.Update(t.Context(), operator, "e", 0, func(ep *Endpoint) error { ep.Auth = &schemas.Auth{Bearer: "token"}; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ring.Open("e", after.Endpoint.Auth.Bearer); err != nil || got != "token" {
		t.Fatalf("the token opens to %q, %v", got, err)
	}
}

func TestRekeyKeepsVersionsAndFreesTheOldKey(t *testing.T) {
	cfg := newConfig(t)
	oldEntry, _ := GenerateKey("old")
	newEntry, _ := GenerateKey("new")
	ring := func(entries ...string) *KeyRing {
		r, err := ParseKeyRing(strings.Join(entries, ","))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a := newAdmin(t, cfg, ring(oldEntry))
	secret := mustCreate(t, a, sample("e")).Secrets[0].Secret
	b := newAdmin(t, cfg, ring(newEntry, oldEntry))
	if n, err := b.Rekey(t.Context(), operator); err != nil || n != 1 {
		t.Fatalf("Rekey: %d, %v", n, err)
	}
	if n, err := b.Rekey(t.Context(), operator); err != nil || n != 0 {
		t.Fatalf("a second Rekey: %d, %v", n, err)
	}
	f := follow(t, cfg, ring(newEntry), FollowerOptions{})
	ep, _ := f.Endpoint("e")
	if got, err := f.OpenSecret("e", ep.Secrets[0].Sealed); err != nil || got != secret || ep.Version != 1 {
		t.Fatalf("after it, at version %d: %q, %v", ep.Version, got, err)
	}
}

func TestTenantHasAMostNumberOfEndpoints(t *testing.T) {
	cfg := newConfig(t)
	a := NewAdmin(cfg, ringOf(t, "k1"), AdminOptions{CheckURL: anyURL, MaxPerTenant: 2})
	t.Cleanup(a.Close)
	for i := range 2 {
		ep := sample(fmt.Sprint("e", i))
		ep.Tenant = "acme"
		mustCreate(t, a, ep)
	}
	ep := sample("e2")
	ep.Tenant = "acme"
	var invalid *ValidationError
	if _, err := a.Create(t.Context(), operator, ep); !errors.As(err, &invalid) || invalid.Field != "tenant" {
		t.Fatalf("a third: %v", err)
	}
	if err := a.Delete(t.Context(), operator, "e0", 0); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, a, ep)
}

func TestUpdateLeavesAloneWhatIsNotConfiguration(t *testing.T) {
	cfg := newConfig(t)
	a := newAdmin(t, cfg, ringOf(t, "k1"))
	mustCreate(t, a, sample("e"))
	for field, edit := range map[string]func(*Endpoint){
		"id":      func(ep *Endpoint) { ep.ID = "other" },
		"tenant":  func(ep *Endpoint) { ep.Tenant = "other" },
		"state":   func(ep *Endpoint) { ep.State = schemas.StateDeleted },
		"version": func(ep *Endpoint) { ep.Version = 9 },
		"secrets": func(ep *Endpoint) { ep.Secrets[0].ExpiresAt = time.Now() },
		"url":     func(ep *Endpoint) { ep.URL = "ftp://x" },
	} {
		var invalid *ValidationError
		if _, err := a.Update(t.Context(), operator, "e", 0, func(ep *Endpoint) error { edit(ep); return nil }); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if ep, err := a.Get(t.Context(), "e"); err != nil || ep.Version != 1 {
		t.Fatalf("%+v, %v", ep, err)
	}
}

// Another writer's record stands in the way of its own endpoint alone, and can be taken out.
func TestAnUnreadableRecordIsNamedAndTheOthersAreRead(t *testing.T) {
	cfg := newConfig(t)
	ring := ringOf(t, "k1")
	a := newAdmin(t, cfg, ring)
	mustCreate(t, a, sample("good"))
	mustCreate(t, a, sample("bad"))
	cl := newClient(t, cfg)
	produce(t, cl, cfg.Names.Endpoints(), "bad", []byte("{not json"))
	produce(t, cl, cfg.Names.Endpoints(), "other", []byte(`{"id":"good"}`))

	list, bad, err := a.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != "good" || len(bad) != 2 {
		t.Fatalf("%v %v %v", list, bad, err)
	}
	unread, ok := errors.AsType[*UnreadableError](bad[0])
	if !ok || unread.Key != "bad" || unread.Offset == 0 || !strings.Contains(unread.Error(), "invalid character") || !strings.Contains(unread.Error(), "milena endpoint delete bad") {
		t.Errorf("%+v", unread)
	}
	if _, err := a.Rekey(t.Context(), operator); !errors.As(err, &unread) {
		t.Errorf("a rekey passes over it in silence: %v", err)
	}
	if _, err := a.Disable(t.Context(), operator, "bad", ""); !errors.As(err, &unread) {
		t.Errorf("a change of it: %v", err)
	}
	for _, id := range []string{"bad", "other"} {
		if err := a.Delete(t.Context(), operator, id, 0); err != nil {
			t.Fatal(err)
		}
	}
	if list, bad, err := a.List(t.Context()); err != nil || len(list) != 1 || len(bad) != 0 {
		t.Errorf("after their deletion: %v %v %v", list, bad, err)
	}
	f := follow(t, cfg, ring, FollowerOptions{})
	if ep, ok := f.Endpoint("bad"); !ok || ep.State != schemas.StateDeleted || ep.Version < 2 {
		t.Errorf("%+v", ep)
	}
}
