package main

import (
	"context"
	"errors"

	"github.com/milena-project/milena/internal/config"
	"github.com/milena-project/milena/internal/registry"
)

// sayUnmatched says that a filter matched no dead letter.
func (r *dlqRun) sayUnmatched() {
	if r.filter.All() {
		r.notef("no dead letters")
		return
	}
	r.notef("nothing matched")
	r.sayUnknown(r.cmd.Context(), r.session, r.filter.Endpoints...)
}

// sayUnknown says which of the endpoints that nothing was found of are not registered: their
// ids may be mistyped. Who may not read the registry, or waits for it longer than --timeout,
// is not told.
func (p *program) sayUnknown(ctx context.Context, s *session, ids ...string) {
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	a, err := s.admin(nil)
	if err != nil {
		return
	}
	defer a.Close()
	var known []string // read where one is unknown
	for _, id := range ids {
		if _, err := a.Get(ctx, id); !errors.Is(err, registry.ErrNotFound) {
			continue
		}
		if known == nil {
			list, _, err := a.List(ctx)
			if err != nil {
				return
			}
			for _, ep := range list {
				known = append(known, ep.ID)
			}
		}
		hint := ""
		if near := config.Nearest(id, known); near != "" {
			hint = "; did you mean " + near + "?"
		}
		p.notef("no endpoint is called %s%s", safe(id), hint)
	}
}
