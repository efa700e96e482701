package router

import (
	"slices"
	"strings"

	"github.com/milena-project/milena/schemas"
)

// FromHeader begins a value of a Mapping that names a header in place of saying the
// attribute itself.
const FromHeader = "header:"

// Mapping gives records attributes that they do not name themselves, by topic. A value
// is the attribute, or FromHeader and the name of the record header that holds it;
// where a record lacks that header it is as if there were no mapping.
type Mapping struct {
	Types   map[string]string // of the event; without one it is schemas.DefaultEventType
	Tenants map[string]string // without one the event has no tenant
}

// Read reads a source record: as schemas.ParseSource, whose error it returns, and with
// what the mapping adds. Whatever the record says itself wins.
func (m Mapping) Read(rec schemas.Record) (schemas.Delivery, error) {
	d, err := schemas.ParseSource(rec)
	if err != nil {
		return d, err
	}
	// A structured event has a type or is malformed.
	if !d.Event.Structured && headerOf(&rec, schemas.HeaderCEType) == "" {
		if v := value(m.Types[rec.Topic], &rec); v != "" {
			d.Event.Type = v
		}
	}
	if d.Event.Tenant == "" {
		d.Event.Tenant = value(m.Tenants[rec.Topic], &rec)
	}
	return d, nil
}

// IsTombstone reports whether a record of a source is no event but the end of a key in
// a compacted topic: its value is null and it names no attribute of CloudEvents. Every
// table that a connector copies has them, behind the event that says the same. A null
// value with attributes is an event whose payload is missing: that is malformed.
func IsTombstone(rec *schemas.Record) bool {
	return rec.Value == nil && !slices.ContainsFunc(rec.Headers, func(h schemas.Header) bool { return strings.HasPrefix(h.Key, "ce_") })
}

func value(rule string, rec *schemas.Record) string {
	if name, ok := strings.CutPrefix(rule, FromHeader); ok {
		return headerOf(rec, name)
	}
	return rule
}

// headerOf is the first header of that name that is not null, as schemas reads them.
func headerOf(rec *schemas.Record, name string) string {
	for i := range rec.Headers {
		if h := &rec.Headers[i]; h.Key == name && h.Value != nil {
			return string(h.Value)
		}
	}
	return ""
}
