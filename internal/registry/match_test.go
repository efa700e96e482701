package registry

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/milena-project/milena/schemas"
)

// matches is the rule as design says it, one endpoint at a time.
func matches(ep *Endpoint, tenant, eventType string) bool {
	if ep.State == schemas.StateDeleted || ep.Tenant != tenant || eventType == "" {
		return false
	}
	for _, p := range ep.EventTypes {
		prefix, isPrefix := strings.CutSuffix(p, ".*")
		switch {
		case p == "*":
			return true
		case isPrefix:
			if rest, ok := strings.CutPrefix(eventType, prefix+"."); ok && rest != "" {
				return true
			}
		case p == eventType:
			return true
		}
	}
	return false
}

func TestMatchIsWhatBruteForceFinds(t *testing.T) {
	word := rapid.SampledFrom([]string{"a", "b", "A", "order", "*", ""})
	dotted := func(t *rapid.T, label string) string {
		return strings.Join(rapid.SliceOfN(word, 1, 4).Draw(t, label), ".")
	}
	pattern := func(t *rapid.T) string {
		p := strings.ReplaceAll(dotted(t, "pattern"), "*", "x")
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return "*"
		case 1:
			return p + ".*"
		}
		return p
	}
	tenant := rapid.SampledFrom([]string{"", "acme", "globex"})
	rapid.Check(t, func(t *rapid.T) {
		v := newView()
		model := map[string]*Endpoint{}
		for range rapid.IntRange(0, 40).Draw(t, "changes") {
			id := rapid.SampledFrom([]string{"e1", "e2", "e3", "e4", "e5"}).Draw(t, "id")
			switch rapid.IntRange(0, 9).Draw(t, "change") {
			case 0:
				v.remove(id)
				delete(model, id)
			case 1:
				if !v.indexed {
					v.buildIndex()
				}
			default:
				ep := &Endpoint{ID: id, Tenant: tenant.Draw(t, "tenant"), State: rapid.SampledFrom([]schemas.EndpointState{
					schemas.StateEnabled, schemas.StateDisabled, schemas.StateDeleted}).Draw(t, "state")}
				for range rapid.IntRange(0, 4).Draw(t, "patterns") {
					ep.EventTypes = append(ep.EventTypes, pattern(t))
				}
				v.put(ep, time.Hour)
				model[id] = ep
			}
		}
		if !v.indexed {
			v.buildIndex()
		}
		for range 20 {
			ten, typ := tenant.Draw(t, "of"), dotted(t, "type")
			var want []string
			for id, ep := range model {
				if matches(ep, ten, typ) {
					want = append(want, id)
				}
			}
			slices.Sort(want)
			if got := ids(v.match(ten, typ)); !slices.Equal(got, want) {
				t.Fatalf("match(%q, %q) = %v, want %v", ten, typ, got, want)
			}
		}
		live := 0
		for _, ep := range model {
			if ep.State != schemas.StateDeleted {
				live++
			}
		}
		if v.len() != live {
			t.Fatalf("len is %d, want %d", v.len(), live)
		}
		for id := range model {
			v.remove(id)
		}
		if len(v.index) != 0 || len(v.keys) != 0 || len(v.deleted) != 0 {
			t.Fatalf("something is left of endpoints that are gone: %v %v %v", v.index, v.keys, v.deleted)
		}
	})
}
