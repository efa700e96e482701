package main

import (
	"os"
	"os/user"

	"github.com/milena-project/milena/internal/egress"
	"github.com/milena-project/milena/internal/registry"
)

// admin changes endpoints by the rules of this configuration.
func (s *session) admin(ring *registry.KeyRing) (*registry.Admin, error) {
	guard, err := egress.New(s.EgressConfig())
	if err != nil {
		return nil, usage("%w", err)
	}
	return registry.NewAdmin(s.kafka, ring, registry.AdminOptions{CheckURL: guard.CheckURL, MaxAge: s.Retry.MaxAge, MaxPerTenant: s.Tenants.MaxEndpoints}), nil
}

// actor is who stands in the audit record.
func actor() registry.Actor {
	who := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	return registry.Actor{Who: who, Door: "cli"}
}
