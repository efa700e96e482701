package registry

import "github.com/milena-project/milena/schemas"

// interner shares texts that many endpoints have in common (tenants, event types,
// names and values of headers, descriptions of a template). It is bounded: when it is full it
// starts afresh, which costs sharing and never correctness.
type interner map[string]string

const (
	internerMax     = 1 << 16 // entries
	internerTextMax = 64      // bytes; longer texts are hardly ever shared
)

func (t interner) text(s string) string {
	if s == "" || len(s) > internerTextMax {
		return s
	}
	if same, ok := t[s]; ok {
		return same
	}
	if len(t) >= internerMax {
		clear(t)
	}
	t[s] = s
	return s
}

// compact shares what can be shared and cuts what encoding/json allocated beyond
// the need (it grows slices to four elements), about 600 bytes an endpoint.
func (t interner) compact(ep *Endpoint) {
	ep.Tenant = t.text(ep.Tenant)
	ep.State = schemas.EndpointState(t.text(string(ep.State)))
	ep.Owner = t.text(ep.Owner)
	ep.Retry.Preset = t.text(ep.Retry.Preset)
	ep.EventTypes = exact(ep.EventTypes)
	for i, s := range ep.EventTypes {
		ep.EventTypes[i] = t.text(s)
	}
	ep.Secrets = exact(ep.Secrets)
	ep.Headers = t.pairs(ep.Headers)
	ep.Metadata = t.pairs(ep.Metadata)
	ep.ForwardHeaders = exact(ep.ForwardHeaders)
	for i, s := range ep.ForwardHeaders {
		ep.ForwardHeaders[i] = t.text(s)
	}
	ep.Signing.Schemes = exact(ep.Signing.Schemes)
	for i, s := range ep.Signing.Schemes {
		ep.Signing.Schemes[i] = schemas.Scheme(t.text(string(s)))
	}
	ep.Signing.Header = t.text(ep.Signing.Header)
	ep.Signing.TimestampHeader = t.text(ep.Signing.TimestampHeader)
	ep.Signing.IDHeader = t.text(ep.Signing.IDHeader)
}

func (t interner) pairs(list []schemas.Pair) []schemas.Pair {
	list = exact(list)
	for i := range list {
		list[i].Name = t.text(list[i].Name)
		list[i].Value = t.text(list[i].Value)
	}
	return list
}

func exact[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return append(make([]T, 0, len(s)), s...)
}

// keyUse counts, for each key of the ring, the secrets that are sealed with it.
type keyUse map[string]keyCount

type keyCount struct {
	n          int
	endpointID string // one that needs it
}

func (u keyUse) add(ep *Endpoint, n int) {
	for sealed := range sealedTexts(ep) {
		id, _, err := splitSealed(sealed)
		if err != nil {
			continue // no key would help; it is reported when it is opened
		}
		c := u[id]
		c.n += n
		if n > 0 {
			c.endpointID = ep.ID
		}
		if c.n <= 0 {
			delete(u, id)
			continue
		}
		u[id] = c
	}
}

func (u keyUse) missing(ring *KeyRing) error {
	for id, c := range u {
		if !ring.Has(id) {
			return &MissingKeyError{KeyID: id, EndpointID: c.endpointID}
		}
	}
	return nil
}

// sealedTexts yields every sealed text of an endpoint.
func sealedTexts(ep *Endpoint) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := range ep.Secrets {
			if !yield(ep.Secrets[i].Sealed) {
				return
			}
		}
		if c := ep.ClientCertificate; c != nil && !yield(c.Key) {
			return
		}
		if ep.Auth == nil {
			return
		}
		if ep.Auth.Bearer != "" && !yield(ep.Auth.Bearer) {
			return
		}
		if ep.Auth.Basic != nil && ep.Auth.Basic.Password != "" {
			yield(ep.Auth.Basic.Password)
		}
	}
}
